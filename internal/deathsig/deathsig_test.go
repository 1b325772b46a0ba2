package deathsig

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestThreadsEnd: a program outlives the thread of every goroutine, and not its parent.
func TestThreadsEnd(t *testing.T) {
	if os.Getenv("GRANGE_TEST_PARENT") != "" {
		parent()
	}
	parent := exec.Command(os.Args[0], "-test.run", "^TestThreadsEnd$")
	parent.Env = append(os.Environ(), "GRANGE_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "runs" {
		t.Errorf("behind the end of threads: %q", lines.Text())
	}
	parent.Process.Kill()
	for lines.Scan() { // until the child has ended, too: it has the other end of the pipe
	}
	parent.Wait()
}

// parent starts a program from a goroutine whose thread ends, as do many others, and says whether the program runs.
func parent() {
	child := exec.Command("cat")
	stdin, _ := child.StdinPipe()
	stdout, _ := child.StdoutPipe()
	child.Stderr = os.Stdout // held open
	onThreads(1, func() {
		if err := Start(child, syscall.SIGKILL); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
		}
	})
	onThreads(50, func() {})
	stdin.Write([]byte("runs\n"))
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		line = err.Error()
	}
	os.Stdout.WriteString(strings.TrimSpace(line) + "\n")
	select {}
}

// onThreads calls f on so many threads, which end.
func onThreads(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Add(1)
		go func() {
			runtime.LockOSThread()
			defer all.Done()
			f()
		}()
	}
	all.Wait()
}
