package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/guest"
)

// connect opens the job port of the VM that the agent made for us.
func (j *Job) connect(vm *api.VM) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.link != nil && (j.started || j.vm.ID == vm.ID) {
		return nil // a restarted agent tells us again
	}
	if j.link != nil {
		j.link.Close() // of an earlier attempt
		j.link = nil
	}
	link, err := net.Dial("unix", vm.JobPort)
	if err != nil {
		return nil // the VM has gone already, and the agent will say why
	}
	j.vm, j.link = vm, link
	j.oneFS = j.oneFS || vm.OneFilesystem
	return nil
}

func (j *Job) disconnect() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.link != nil {
		j.link.Close()
	}
	j.link = nil
}

// start lets bytes flow: the guest is up. From here on the job may run, and never runs again elsewhere.
func (j *Job) start() {
	if j.batch != nil {
		j.notes.close() // not under our lock, which signals need: a note may hang on its way out
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.request.Started = true
	if j.started {
		return
	}
	if j.link == nil {
		j.finish(outcome{status: batch.ExitVMLost, err: errors.New("the job port of the VM cannot be opened")})
		return
	}
	j.started = true
	go j.attach(j.link, j.vm.JobPort)
	go j.feed()
	var outputs sync.WaitGroup
	outputs.Go(func() { j.collect(guest.StreamStdout, j.opts.Stdout) })
	outputs.Go(func() { j.collect(guest.StreamStderr, j.opts.Stderr) })
	j.serveBinds(j.oneFS)
	if ports := j.doors.open(j.session, j.use, j.out.show); ports != nil {
		j.send(guest.HostMessage{Publish: ports})
	}
	go guest.Lines(j.session.Stream(guest.StreamMessages), guest.MaxGuestLine, func(m guest.GuestMessage) {
		if m.Exit == nil {
			return // a job that was not started: the agent says so
		}
		outputs.Wait()
		j.finish(j.exited(m.Exit))
	})
}

// serveBinds answers the VM's file requests. Of a directory that virtiofs has, none come.
func (j *Job) serveBinds(oneFilesystem bool) {
	for i, b := range j.binds {
		go func() {
			err := b.opened.Serve(j.session.Stream(guest.StreamBind+byte(i)), b.options(oneFilesystem))
			if err != nil && !errors.Is(err, guest.ErrClosed) {
				j.out.printf("bind %s: %v", b.Source, err)
			}
		}()
	}
}

// attach keeps the session connected to the VM as long as there is one.
func (j *Job) attach(link net.Conn, path string) {
	for {
		j.session.AttachHost(link)
		link.Close()
		time.Sleep(50 * time.Millisecond)
		if j.hasLeft() {
			return
		}
		var err error
		for link, err = net.Dial("unix", path); err != nil; link, err = net.Dial("unix", path) {
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) || j.hasLeft() {
				return // QEMU has gone; the agent finds out why
			}
			time.Sleep(50 * time.Millisecond)
		}
		j.mu.Lock()
		j.link = link
		left := j.left
		j.mu.Unlock()
		if left {
			link.Close()
			return
		}
	}
}

func (j *Job) hasLeft() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.left
}

func (j *Job) exited(e *guest.Exit) outcome {
	o := outcome{status: e.Code, exit: &api.Exit{Code: e.Code, Signal: e.Signal, User: e.User, System: e.System,
		MaxRSS: e.MaxRSS, OOMKills: e.OOMKills}}
	if e.OOMKills > 0 {
		j.outOfMemory(e.OOMKills)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writeErr != nil {
		o.err = fmt.Errorf("output of the job was lost: %w", j.writeErr)
		if o.status == 0 {
			o.status = exitFailed
		}
	}
	return o
}

// feed carries our input to the job, no faster than it reads.
func (j *Job) feed() {
	io.Copy(j.session.Stream(guest.StreamStdin), typing{j.stdin, j.use})
	j.session.Stream(guest.StreamStdin).CloseWrite()
}

// collect carries one output of the job to ours. When ours breaks, the job's breaks too.
func (j *Job) collect(id byte, to io.Writer) {
	stream := j.session.Stream(id)
	if _, err := io.Copy(afterNotes{to, j.notes}, stream); err != nil && !errors.Is(err, guest.ErrClosed) {
		if !errors.Is(err, syscall.EPIPE) {
			j.mu.Lock()
			j.writeErr = err
			j.mu.Unlock()
		}
		j.send(guest.HostMessage{Broken: id})
		io.Copy(io.Discard, stream)
	}
}

// afterNotes is where a job's output goes: from its first byte on there is nothing left to wait for.
type afterNotes struct {
	io.Writer
	notes *notes
}

func (w afterNotes) Write(p []byte) (int, error) {
	w.notes.close()
	return w.Writer.Write(p)
}

func (j *Job) send(m guest.HostMessage) {
	guest.WriteLine(j.session.Stream(guest.StreamMessages), m)
}
