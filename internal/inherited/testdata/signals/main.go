// Command signals prints the signals that were ignored and blocked when it started, and its standard files that were
// /dev/null and closed. Called as a job's wrapper it prints as well how many of its threads do not block TSTP, and
// executes grep, which prints what is blocked then. It becomes the script that BECOME holds.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/inherited"
)

func main() {
	if script := os.Getenv("BECOME"); script != "" {
		fmt.Println(inherited.Exec("/bin/sh", []string{"sh", "-c", script}, nil))
		os.Exit(1)
	}
	p := inherited.Process()
	null, closed := inherited.Files(os.Stdin, os.Stdout, os.Stderr)
	fmt.Printf("%x %x %b %b\n", p.Ignored, p.Blocked, null, closed)
	if len(os.Args) > 1 {
		for range 10 { // more threads
			go runtime.LockOSThread()
		}
		time.Sleep(10 * time.Millisecond)
		fmt.Println(unheld())
		inherited.Exec("/bin/grep", []string{"grep", "SigBlk", "/proc/self/status"}, nil)
	}
}

// unheld counts our threads that do not block TSTP.
func unheld() (n int) {
	threads, _ := filepath.Glob("/proc/self/task/*/status")
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), "SigBlk:\t")
		mask, err := strconv.ParseUint(strings.TrimSpace(rest[:16]), 16, 64)
		if err != nil || mask&(1<<(syscall.SIGTSTP-1)) == 0 {
			n++
		}
	}
	return n
}
