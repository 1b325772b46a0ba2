package inside

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/inherited"
)

// Srun is the program of that name in a VM. It returns the exit status.
func Srun(args []string) int {
	status, err := srun(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "srun: %v\n", err)
		return 1
	}
	return status
}

func srun(args []string) (int, error) {
	path := os.Getenv(stepVariable)
	if path == "" {
		return 0, fmt.Errorf("this is not inside a job of Slurm whose caller starts steps (%s is not set)",
			stepVariable)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return 0, fmt.Errorf("the job that this belongs to has ended: %w", err)
	}
	defer conn.Close()
	here, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	in, out, errs, err := sendStep(conn, guest.Step{Argv: args, Env: os.Environ(), Dir: here,
		Process: inherited.Process()})
	if err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGCONT, unix.SIGALRM)
	go func() {
		encoder := json.NewEncoder(conn)
		for s := range signals {
			encoder.Encode(guest.StepRequest{Signal: int(s.(syscall.Signal))})
		}
	}()
	go func() {
		io.Copy(in, os.Stdin)
		in.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { io.Copy(os.Stdout, out) })
	outputs.Go(func() { io.Copy(os.Stderr, errs) })
	var answer guest.StepAnswer
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return 0, fmt.Errorf("the host went away: %w", err)
	}
	outputs.Wait()
	if answer.Refused != "" {
		return 0, fmt.Errorf("%s", answer.Refused)
	}
	return answer.Status, nil
}

// sendStep sends a call and the far ends of three new pipes, and returns the near ones.
func sendStep(conn *net.UnixConn, s guest.Step) (in, out, errs *os.File, err error) {
	s.Encode()
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(text) > maxStepText {
		return nil, nil, nil, fmt.Errorf("the command and its environment are too long")
	}
	inFar, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer inFar.Close()
	out, outFar, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer outFar.Close()
	errs, errsFar, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer errsFar.Close()
	n := len(text)
	rights := unix.UnixRights(int(inFar.Fd()), int(outFar.Fd()), int(errsFar.Fd()))
	if _, _, err := conn.WriteMsgUnix([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, rights,
		nil); err != nil {
		return nil, nil, nil, err
	}
	_, err = conn.Write(text)
	return in, out, errs, err
}
