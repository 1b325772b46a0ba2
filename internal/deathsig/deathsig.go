// Package deathsig starts programs that end with this process, whatever ends it.
package deathsig

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// The kernel sends the signal when the thread that started a program ends, and threads of Go end before their process:
// those of goroutines that end locked to one, as package sandbox's do.
var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread() // for ever: this thread ends with the process
		for start := range starts {
			start()
		}
	}()
	return starts
})

// Start starts cmd, which gets the signal when this process has ended.
func Start(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = signal
	done := make(chan error)
	starter() <- func() { done <- cmd.Start() }
	return <-done
}
