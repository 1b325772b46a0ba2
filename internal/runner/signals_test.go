package runner

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/batch"
)

// stoppable is a wrapper in a process of its own, with an agent that we play.
type stoppable struct {
	*testing.T
	events  chan api.JobEvent // for the wrapper; it asks for a job before it takes the first
	calls   chan string       // to suspend or resume, as they come
	release chan struct{}     // lets one suspend be answered
	port    net.Listener      // of the VM's job
	child   *exec.Cmd
	loose   bool // it may ask to suspend and resume, or not
}

func startStoppable(t *testing.T) *stoppable {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "st") // short: it holds unix sockets
	if err != nil {
		t.Fatal(err)
	}
	s := &stoppable{T: t, events: make(chan api.JobEvent), calls: make(chan string, 8), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		for e := range s.events {
			json.NewEncoder(w).Encode(e)
			http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("POST /v1/jobs/{id}/done",
		func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(api.JobEnd{}) })
	mux.HandleFunc("POST /v1/vms/{vm}/{what}", func(w http.ResponseWriter, r *http.Request) {
		s.calls <- r.PathValue("what")
		if r.PathValue("what") == "suspend" {
			select {
			case <-s.release:
			case <-r.Context().Done():
			}
		}
		json.NewEncoder(w).Encode(api.VM{})
	})
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if s.port, err = net.Listen("unix", socket+"p"); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	s.child = exec.Command(os.Args[0], "-test.run", "^TestStops$")
	s.child.Env = append(os.Environ(), "GRANGE_TEST_STOPS="+socket)
	s.child.Stderr = os.Stderr
	if err := s.child.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(30*time.Second, func() { s.child.Process.Kill() }) // a wrapper that stays stopped
	t.Cleanup(func() {
		guard.Stop()
		s.child.Process.Kill()
		s.child.Wait()
		server.Close()
		s.port.Close()
		os.RemoveAll(dir)
	})
	s.events <- api.JobEvent{Event: api.EventPolicy} // it is there, and takes signals
	return s
}

// vm reports its VM to the wrapper, and returns when it knows.
func (s *stoppable) vm() {
	s.Helper()
	s.events <- api.JobEvent{Event: api.EventVM,
		VM: &api.VM{ID: "1", Name: "grange-1", JobPort: s.port.Addr().String()}}
	if _, err := s.port.Accept(); err != nil {
		s.Fatal(err)
	}
}

func (s *stoppable) send(signals ...syscall.Signal) {
	for _, signal := range signals {
		s.child.Process.Signal(signal)
	}
}

// call waits for the wrapper to ask for this.
func (s *stoppable) call(want string) {
	s.Helper()
	select {
	case got := <-s.calls:
		if got != want {
			s.Errorf("%s, want %s", got, want)
		}
	case <-time.After(20 * time.Second):
		s.Fatalf("it never asks to %s", want)
	}
}

// becomes waits for a change of the process: "stopped", "continued" or "exited".
func (s *stoppable) becomes(want string) {
	s.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.child.Process.Pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			s.Fatal(err)
		}
		break
	}
	got := "killed"
	switch {
	case status.Stopped():
		got = "stopped"
	case status.Continued():
		got = "continued"
	case status.Exited() && status.ExitStatus() == batch.ExitNotStarted:
		got = "exited"
	}
	if got != want {
		s.Fatalf("the wrapper is %s (%x), want %s", got, status, want)
	}
}

// end ends the job. A wrapper that is stopped, or stops now, does not end.
func (s *stoppable) end() {
	s.Helper()
	s.events <- api.JobEvent{Event: api.EventFailed,
		Problem: &api.Problem{Type: "grange:x", Status: 503, Detail: "the end"}}
	close(s.events)
	s.becomes("exited")
	if len(s.calls) > 0 && !s.loose {
		s.Errorf("it asked to %s, too", <-s.calls)
	}
}

// TestStops: whatever comes after TSTP, the last CONT lets wrapper and VM go on.
func TestStops(t *testing.T) {
	if socket := os.Getenv("GRANGE_TEST_STOPS"); socket != "" {
		stdin, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		j, err := New(api.JobRequest{Argv: []string{"x"}, Dir: "/"}, Options{Socket: socket, Stdin: stdin,
			Stdout: os.Stdout, Stderr: os.Stderr, Notes: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		os.Exit(j.Run(t.Context()).Status)
	}
	const tstp, cont = syscall.SIGTSTP, syscall.SIGCONT
	for name, play := range map[string]func(s *stoppable){
		"TSTP, CONT": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"CONT while the agent suspends": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.send(cont)
			select { // it waits no longer for the answer; one that does gets it
			case what := <-s.calls:
				s.calls <- what
			case <-time.After(5 * time.Second):
				s.release <- struct{}{}
			}
			s.call("resume")
		},
		"TSTP twice": func(s *stoppable) {
			s.vm()
			s.send(tstp)
			s.call("suspend")
			s.send(tstp)
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"TSTP and CONT together": func(s *stoppable) {
			s.vm()
			s.loose = true
			s.send(tstp, cont)
		},
		"CONT alone": func(s *stoppable) {
			s.vm()
			s.send(cont)
			time.Sleep(2 * justBehind) // so that it can be told that the other one came later
			s.send(tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
		"TSTP before there is a VM": func(s *stoppable) {
			s.send(tstp)
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.vm()
			time.Sleep(2 * justBehind)
			s.send(tstp)
			s.call("suspend")
			s.release <- struct{}{}
			s.becomes("stopped")
			s.send(cont)
			s.becomes("continued")
			s.call("resume")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStoppable(t)
			play(s)
			s.end()
		})
	}
}
