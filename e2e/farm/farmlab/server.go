package farmlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Server is one server of a farm.
type Server struct {
	Socket string
	URL    string // by which hosts reach it
	Binary string // the grange program; another one counts from the next Start on
	Config string // path of its configuration
	farm   *Farm
	log    *os.File
	cmd    *exec.Cmd
	ended  chan struct{}
}

const firstPort = 8443

// startServers writes a configuration for each server, and starts them one after the other.
func (f *Farm) startServers(ctx context.Context) error {
	f.Store = f.path("farm.db")
	if f.options.Postgres {
		if err := f.startDatabase(ctx); err != nil {
			return err
		}
		f.Store = f.postgres.URL(database)
	}
	for i := range f.options.Servers {
		address := fmt.Sprintf("%s:%d", hubAddress, firstPort+i)
		s := &Server{farm: f, Socket: f.path(fmt.Sprintf("server%d.sock", i)), URL: "https://" + address,
			Binary: f.Binary, Config: f.path(fmt.Sprintf("server%d.toml", i))}
		text := fmt.Sprintf("store = %q\nsocket = %q\nlisten = %q\nurl = %q\n%s", f.Store, s.Socket, address, s.URL,
			f.options.Server)
		if f.options.Postgres {
			// all of them have it, and the machine's own stays out of this
			text = fmt.Sprintf("ca_key_file = %q\n%s", f.path("ca.key"), text)
		}
		if err := os.WriteFile(s.Config, []byte(text), 0o600); err != nil {
			return err
		}
		f.Servers = append(f.Servers, s)
		f.say("starting server %d of %d", i+1, f.options.Servers)
		if err := s.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Address is how `grange --server` names it.
func (s *Server) Address() string { return "unix://" + s.Socket }

// Start starts the server, also after it was killed or stopped, and waits until it answers. The error of one that ends
// instead has the end of its log.
func (s *Server) Start(ctx context.Context) error {
	if s.log == nil {
		var err error
		if s.log, err = os.OpenFile(s.Config+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	s.cmd = exec.Command("/usr/bin/nsenter", "--net="+path(s.farm.network.hub()), "--", s.Binary, "server",
		"--config", s.Config)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	return Await(ctx, time.Minute, "the server answers", func() (bool, error) {
		select {
		case <-s.ended:
			return true, fmt.Errorf("the server ended:\n%s", end(s.Log()))
		default:
		}
		cmd := exec.CommandContext(ctx, s.farm.Binary, "host", "list", "--server", s.Address())
		out, err := cmd.CombinedOutput()
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return true, nil
	})
}

// Running reports whether the server's process lives.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Kill ends the server as a crash would.
func (s *Server) Kill() { s.signal(syscall.SIGKILL) }

func (s *Server) signal(sig syscall.Signal) {
	if s.Running() {
		s.cmd.Process.Signal(sig)
		<-s.ended
	}
}

// Stop ends the server in order.
func (s *Server) Stop() error {
	s.signal(syscall.SIGTERM)
	if s.log == nil {
		return nil
	}
	err := s.log.Close()
	s.log = nil
	return err
}

// Log is all that the server logged.
func (s *Server) Log() string {
	text, _ := os.ReadFile(s.Config + ".log")
	return string(text)
}

// running is the first server whose process lives; the first of all when none does.
func (f *Farm) running() *Server {
	for _, s := range f.Servers {
		if s.Running() {
			return s
		}
	}
	return f.Servers[0]
}
