package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/farm/farmlab"
	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/chunk"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/uplink"
	"github.com/grange-project/grange/internal/vmimage"
)

// fleet is a server, simulated hosts in some processes, and agents, all on this machine.
type fleet struct {
	options
	dir         string
	url, socket string
	server      *exec.Cmd
	digest      string // of the image's file, in hex
	agents      []*lab.Lab
	children    []*exec.Cmd

	mu    sync.Mutex
	lines map[string]line // by host and life: what it got last
	lives map[string]int
	whole map[string]bool
	wrong error
}

const processes = 4 // of simulated hosts

// fleet has all hosts fetch the image at once. When a third of the hosts' bytes have come, a quarter of the simulated
// hosts is killed and started again; at half, the server.
func (o options) fleet(ctx context.Context, work string, r *result) (err error) {
	f := &fleet{options: o, dir: filepath.Join(work, "fleet"),
		lines: map[string]line{}, lives: map[string]int{}, whole: map[string]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); err = errors.Join(err, f.close()) }()
	data, err := f.prepare(ctx, r)
	if err != nil {
		return err
	}
	began := time.Now()
	agents := make(chan error, len(f.agents))
	for _, a := range f.agents {
		go func() {
			out, err := a.Grange(ctx, "image", "add", "--local", "bench", "fleet:sha256:"+f.digest).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("grange image add: %w\n%s\n%s", err, out, a.AgentLog())
			}
			agents <- err
		}()
	}
	for n := range processes {
		if err := f.start(ctx, n); err != nil {
			return err
		}
	}
	if err := f.reached(ctx, data/3); err != nil {
		return err
	}
	f.children[0].Process.Kill()
	f.children[0].Wait()
	if err := f.start(ctx, 0); err != nil {
		return err
	}
	if err := f.reached(ctx, data/2); err != nil {
		return err
	}
	f.server.Process.Kill()
	f.server.Wait()
	time.Sleep(2 * time.Second)
	if err := f.serve(ctx); err != nil {
		return err
	}
	if err := f.reached(ctx, -1); err != nil {
		return err
	}
	for range f.agents {
		if err := <-agents; err != nil {
			return err
		}
	}
	r.Seconds, r.Killed = seconds(time.Since(began)), o.hosts/processes+1
	source, err := f.fromSource()
	r.SourceCopies = float64(source) / float64(data)
	fmt.Printf("%d hosts and %d agents: %.1f s, the server sent %.2f copies\n", o.hosts, o.agents, r.Seconds,
		r.SourceCopies)
	return err
}

// prepare starts the server, with the image in it, lets the hosts join and starts the agents.
func (f *fleet) prepare(ctx context.Context, r *result) (data int64, err error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return 0, err
	}
	if f.programs == "" {
		f.programs = filepath.Join(filepath.Dir(f.dir), "bin")
		if err := lab.Build(ctx, f.programs); err != nil {
			return 0, err
		}
	}
	if err := f.serve(ctx); err != nil {
		return 0, err
	}
	if data, err = f.add(ctx, r); err != nil {
		return 0, err
	}
	if err := f.join(ctx); err != nil {
		return 0, err
	}
	return data, f.startAgents(ctx)
}

// add brings the image into the server's catalogue: what is not there it removes from its disk.
func (f *fleet) add(ctx context.Context, r *result) (data int64, err error) {
	if _, err := f.grange(ctx, "image", "add", "bench", filepath.Join(f.images, "first.raw")); err != nil {
		return 0, err
	}
	images, err := vmimage.Open(filepath.Join(f.dir, "images", "store"))
	if err != nil {
		return 0, err
	}
	defer images.Close()
	digests, err := vmimage.Exchange{Store: images}.Digests()
	if err != nil || len(digests) != 1 {
		return 0, fmt.Errorf("the server has images %q, %v", digests, err)
	}
	image, err := images.Get(digests[0])
	if err != nil {
		return 0, err
	}
	x, err := cut(image.Disk())
	if err != nil {
		return 0, err
	}
	f.digest, data = image.Files[0].SHA256, chunk.Lay(x).Bytes
	r.Bytes, r.DataBytes = x.Size, data
	return data, nil
}

// serve starts the server, also after it was killed.
func (f *fleet) serve(ctx context.Context) error {
	config := filepath.Join(f.dir, "server.toml")
	if f.url == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address := l.Addr().String()
		l.Close()
		f.url, f.socket = "https://"+address, filepath.Join(f.dir, "server.sock")
		text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\nimage_rate = \"%d\"\n",
			filepath.Join(f.dir, "farm.db"), f.socket, address, f.url, f.rate)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join(f.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	f.server = exec.Command(filepath.Join(f.programs, "grange"), "server", "--config", config)
	f.server.Stdout, f.server.Stderr = log, log
	if err := f.server.Start(); err != nil {
		return err
	}
	return farmlab.Await(ctx, time.Minute, "the server answers", func() (bool, error) {
		_, err := f.grange(ctx, "host", "list")
		return err == nil, err
	})
}

func (f *fleet) grange(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(f.programs, "grange"), args...)
	cmd.Env = append(os.Environ(), "GRANGE_SERVER=unix://"+f.socket, "HOME="+f.dir)
	out, err := cmd.Output()
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(f.dir, "server.log"))
		err = fmt.Errorf("grange %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return string(out), err
}

const farmFile = `
[cells.general]
broker = "grange"
default = true
`

func (f *fleet) join(ctx context.Context) error {
	file := filepath.Join(f.dir, "farm.toml")
	if err := os.WriteFile(file, []byte(farmFile), 0o600); err != nil {
		return err
	}
	if _, err := f.grange(ctx, "apply", "-f", file); err != nil {
		return err
	}
	for n := range f.hosts {
		token, err := f.token(ctx)
		if err != nil {
			return err
		}
		dir := filepath.Join(f.dir, hostName(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		_, err = uplink.Join(ctx, uplink.JoinOptions{Dir: root, Server: f.url, Token: token, Name: hostName(n),
			MachineID: hostName(n)})
		if err = errors.Join(err, root.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) token(ctx context.Context) (string, error) {
	token, err := f.grange(ctx, "host", "token", "create", "--cell", "general")
	return strings.TrimSpace(token), err
}

func hostName(n int) string { return fmt.Sprintf("sim-%02d", n) }

func (f *fleet) startAgents(ctx context.Context) error {
	for n := range f.options.agents {
		a, err := lab.Start(ctx, lab.Options{NoImage: true, Network: "/proc/self/ns/net", Inside: true,
			Programs: f.programs, Parent: "/var/tmp", Config: fmt.Sprintf("reserved_memory = \"256M\"\n[transfer]\n"+
				"listen = \"127.0.0.1:0\"\nreceive_rate = \"%d\"\nsend_rate = \"%d\"\n", f.rate, f.rate)})
		if err != nil {
			return err
		}
		f.agents = append(f.agents, a)
		token, err := f.token(ctx)
		if err != nil {
			return err
		}
		file := filepath.Join(a.Dir, "join-token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			return err
		}
		cmd, err := a.Inside(ctx, "host", "join", "--config", a.Config, "--token-file", file, "--name",
			fmt.Sprintf("agent-%d", n), "--server", f.url)
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("host join: %w\n%s", err, out)
		}
		if err := farmlab.Await(ctx, time.Minute, "the agent listens for other hosts", func() (bool, error) {
			return strings.Contains(a.AgentLog(), "other hosts get images here"), nil
		}); err != nil {
			return fmt.Errorf("%w\n%s", err, a.AgentLog())
		}
	}
	return nil
}

// start starts a process of simulated hosts, also after it was killed.
func (f *fleet) start(ctx context.Context, number int) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	var names []string
	for n := number; n < f.hosts; n += processes {
		names = append(names, hostName(n))
	}
	log, err := os.OpenFile(filepath.Join(f.dir, "hosts.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, own, "-child", f.dir, "-child-hosts", strings.Join(names, ","), "-child-digest",
		f.digest, "-child-rate", strconv.FormatInt(f.rate, 10))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if len(f.children) <= number {
		f.children = append(f.children, nil)
	}
	f.children[number] = cmd
	f.mu.Lock()
	for _, name := range names {
		f.lives[name]++
	}
	f.mu.Unlock()
	go f.hear(out, f.lives[names[0]])
	return nil
}

// hear takes over what the hosts of a process print.
func (f *fleet) hear(out interface{ Read([]byte) (int, error) }, life int) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var l line
		if json.Unmarshal(s.Bytes(), &l) != nil {
			continue
		}
		f.mu.Lock()
		switch {
		case l.Error != "":
			f.wrong = fmt.Errorf("host %s: %s", l.Host, l.Error)
		case l.Whole:
			f.whole[l.Host] = true
		default:
			f.lines[fmt.Sprint(l.Host, " ", life)] = l
		}
		f.mu.Unlock()
	}
}

// reached waits until the simulated hosts have so many bytes each, on average; -1: until all have all.
func (f *fleet) reached(ctx context.Context, each int64) error {
	for {
		f.mu.Lock()
		var sum int64
		for _, l := range f.lines {
			sum += l.Source + l.Peers
		}
		whole, wrong := len(f.whole), f.wrong
		f.mu.Unlock()
		if wrong != nil || each >= 0 && sum >= each*int64(f.hosts) || whole == f.hosts {
			return wrong
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var fromServer = regexp.MustCompile(`msg="image fetched".* from_server=(\S+)`)

// fromSource is what the server sent: to simulated hosts in all of their lives, and to agents.
func (f *fleet) fromSource() (sum int64, err error) {
	f.mu.Lock()
	for _, l := range f.lines {
		sum += l.Source
	}
	f.mu.Unlock()
	for _, a := range f.agents {
		m := fromServer.FindStringSubmatch(a.AgentLog())
		if m == nil {
			return 0, fmt.Errorf("an agent fetched nothing:\n%s", a.AgentLog())
		}
		n, err := farm.ParseBytes(m[1])
		if err != nil {
			return 0, err
		}
		sum += int64(n)
	}
	return sum, nil
}

func (f *fleet) close() error {
	var errs []error
	for _, c := range f.children {
		c.Wait() // ctx has ended it
	}
	for _, a := range f.agents {
		errs = append(errs, a.Close())
	}
	if f.server != nil {
		f.server.Process.Kill()
		f.server.Wait()
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}
