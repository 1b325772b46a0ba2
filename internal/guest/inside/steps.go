package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
)

// The srun of a VM is grange-guest under that name. It hands its command line, its environment and three pipes to the
// grange-guest that runs the job, over a socket that only the job's user may use, and does what any srun does with
// signals and status.
const (
	stepPrograms = "/run/grange/bin"
	stepSockets  = "/run/grange/steps"
	stepVariable = "GRANGE_STEPS" // where the job's srun finds its socket
	// StepName is the name under which grange-guest is a VM's srun.
	StepName = "srun"
)

// stepServer answers the sruns of one job.
type stepServer struct {
	listener *net.UnixListener
	session  *guest.Session
	free     chan int // slots
	stopped  chan struct{}
}

// openSteps makes the job's srun and its socket, and puts both into the job's environment.
func (t *task) openSteps() error {
	if !t.job.Steps {
		return nil
	}
	for _, dir := range []string{stepPrograms, stepSockets} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := placeProgram(filepath.Join(stepPrograms, StepName)); err != nil {
		return err
	}
	path := filepath.Join(stepSockets, t.job.ID)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(path, 0o600),
		os.Lchown(path, int(t.job.User.UID), int(t.job.User.GID))); err != nil {
		listener.Close()
		return err
	}
	s := &stepServer{listener, t.session, make(chan int, guest.MaxSteps), make(chan struct{})}
	for slot := range guest.MaxSteps {
		s.free <- slot
	}
	t.mu.Lock()
	t.steps = s
	t.mu.Unlock()
	go s.serve()
	t.job.Env = stepEnvironment(t.job.Env, path)
	return nil
}

// placeProgram puts grange-guest under another name. In a container's root it has none: there it is copied.
func placeProgram(name string) error {
	if initramfs == nil {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if err := os.Symlink(self, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil // an earlier task's
	} else if err != nil {
		return err
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return errors.Join(err, to.Close())
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// stepEnvironment puts our srun behind all others.
func stepEnvironment(env []string, socket string) []string {
	path := getenv(env, "PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	rest := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, stepVariable+"=")
	})
	return append(rest, "PATH="+path+":"+stepPrograms, stepVariable+"="+socket)
}

func (s *stepServer) close() {
	s.listener.Close() // and removes the socket
	close(s.stopped)
}

func (s *stepServer) serve() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if err := s.relay(conn); err != nil {
				json.NewEncoder(conn).Encode(guest.StepAnswer{Status: 1, Refused: err.Error()})
			}
		}()
	}
}

// relay carries one call of srun to the host and back.
func (s *stepServer) relay(conn *net.UnixConn) error {
	step, pipes, err := receiveStep(conn)
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range pipes {
			p.Close()
		}
	}()
	var slot int
	select {
	case slot = <-s.free:
	case <-s.stopped:
		return errEnded
	}
	first := byte(guest.StreamStep + slot*guest.StepStreams)
	stream := func(n byte) *guest.Stream { return s.session.Stream(first + n) }
	if err := guest.WriteLine(stream(0), guest.StepRequest{Open: step}); err != nil {
		return err
	}
	var ends sync.WaitGroup
	ends.Go(func() { guest.WriteChunks(stream(1), pipes[0]) })
	ends.Go(func() { guest.ReadChunks(pipes[1], stream(2)); pipes[1].Close() })
	ends.Go(func() { guest.ReadChunks(pipes[2], stream(3)); pipes[2].Close() })
	answered := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() { // they come as they come; when the caller has died, the step is to end
		decoder := json.NewDecoder(conn)
		for {
			var r guest.StepRequest
			err := decoder.Decode(&r)
			select {
			case <-answered: // the slot is another step's soon
				return
			default:
			}
			if err != nil {
				guest.WriteLine(stream(0), guest.StepRequest{Signal: int(unix.SIGTERM)})
				return
			}
			guest.WriteLine(stream(0), guest.StepRequest{Signal: r.Signal})
		}
	})
	var answer guest.StepAnswer
	if err := readAnswer(stream(0), &answer); err != nil {
		return err
	}
	close(answered)
	conn.SetReadDeadline(time.Now())
	signals.Wait()
	pipes[0].Close() // what it has not read, nobody reads
	ends.Wait()
	err = json.NewEncoder(conn).Encode(answer)
	s.free <- slot
	return err
}

// readAnswer reads one line, and no byte beyond it.
func readAnswer(r io.Reader, into *guest.StepAnswer) error {
	var line []byte
	for one := make([]byte, 1); len(line) < guest.MaxGuestLine; {
		if _, err := io.ReadFull(r, one); err != nil {
			return err
		}
		switch {
		case one[0] != '\n':
			line = append(line, one[0])
		case len(line) > 0:
			return json.Unmarshal(line, into)
		}
	}
	return errors.New("an answer without end")
}

// receiveStep reads what an srun wants, and takes its pipes: stdin to read, stdout and stderr to write.
func receiveStep(conn *net.UnixConn) (*guest.Step, []*os.File, error) {
	head, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(3*4))
	n, nr, _, _, err := conn.ReadMsgUnix(head, rights)
	if err != nil || n != len(head) {
		return nil, nil, fmt.Errorf("half a call of srun: %w", err)
	}
	var fds []int
	if messages, err := unix.ParseSocketControlMessage(rights[:nr]); err == nil && len(messages) == 1 {
		fds, _ = unix.ParseUnixRights(&messages[0])
	}
	var pipes []*os.File
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		unix.SetNonblock(fd, true) // they are of this call alone
		pipes = append(pipes, os.NewFile(uintptr(fd), "srun"))
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16 | int(head[3])<<24
	if len(pipes) != 3 || size <= 0 || size > maxStepText {
		for _, p := range pipes {
			p.Close()
		}
		return nil, nil, errors.New("a call of srun without its pipes")
	}
	text := make([]byte, size)
	step := new(guest.Step)
	if _, err = io.ReadFull(conn, text); err == nil {
		err = json.Unmarshal(text, step)
	}
	if err != nil {
		for _, p := range pipes {
			p.Close()
		}
		return nil, nil, err
	}
	return step, pipes, nil
}

// maxStepText leaves room for what makes a line of it.
const maxStepText = guest.MaxStepLine - 1024
