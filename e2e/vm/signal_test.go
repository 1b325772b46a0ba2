package vm

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// signals sends each signal to `grange exec`; the command in the VM gets it and answers.
func signals(t *testing.T, vm *oneVM) {
	for name, s := range map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM,
		"HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := launch(t, vm.exec(t, "--", "sh", "-c",
				"trap 'echo got "+name+"; exit 9' "+name+"; echo up; while :; do sleep 0.05; done"))
			j.expect(t, "up")
			j.Process.Signal(s)
			j.finish(t).want(t, 9, "up\ngot "+name+"\n")
		})
	}
}

// ignoredSignals has a shell ignore signals before it becomes `grange exec`, as nohup and background commands of
// scripts do: none of them ends the command in the VM, two INT in a row neither.
func ignoredSignals(t *testing.T, vm *oneVM) {
	cmd := vm.within(t, "/bin/bash", "-c", "trap '' HUP INT QUIT PIPE; exec \"$0\" exec \"$@\"", host.Binary, "--", "sh",
		"-c", "grep SigIgn /proc/self/status; echo up; read go; echo end")
	// The processes above this test may ignore signals, too.
	here, err := exec.Command("/bin/bash", "-c",
		"trap '' HUP INT QUIT PIPE; exec grep SigIgn /proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	j := launch(t, cmd)
	j.expect(t, "up")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGINT} {
		j.Process.Signal(s)
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintln(input, "go")
	j.finish(t).want(t, 0, string(here)+"up\nend\n")
}

func TestInterruptTwiceGivesUp(t *testing.T) {
	j := start(t, host, "--", "sh", "-c", "trap 'echo no' INT; echo up; while :; do sleep 0.05; done")
	j.Process.Signal(syscall.SIGINT)
	j.expect(t, "no")
	j.Process.Signal(syscall.SIGINT)
	if r := j.finish(t); r.code != 130 {
		t.Errorf("status %d, want 130: %s", r.code, r.errors)
	}
	await(t, host, "the VM's end", noVMs)
}

func TestStopAndContinue(t *testing.T) {
	j, input := startWithInput(t, "--", "sh", "-c", "echo up; read go; echo end")
	j.Process.Signal(syscall.SIGTSTP)
	await(t, host, "a suspended VM", hasState("suspended"))
	var err error // libvirt is asked to stop the VM when it is called suspended already
	for state := ""; strings.TrimSpace(state) != "paused"; {
		if state, err = host.Virsh(ctx(t), "domstate", vmName(t)); err != nil {
			t.Fatal(err)
		}
	}
	j.Process.Signal(syscall.SIGCONT)
	fmt.Fprintln(input, "go")
	j.finish(t).want(t, 0, "up\nend\n")
}

func vmName(t *testing.T) string {
	vms, err := host.Client.VMs(ctx(t))
	if err != nil || len(vms) == 0 {
		t.Fatal(vms, err)
	}
	return vms[0].Name
}

func timeLimit(t *testing.T, vm *oneVM) {
	r := run(t, vm.exec(t, "--time", "1s", "--", "sleep", "1000"), "")
	if r.code != 143 || !strings.Contains(r.errors, "time limit") {
		t.Errorf("status %d, %q; want 143 and a word about the limit", r.code, r.errors)
	}
}

// brokenOutput ends a command by SIGPIPE when its reader goes, as here.
func brokenOutput(t *testing.T, vm *oneVM) {
	cmd := vm.exec(t, "--", "sh", "-c", "yes; echo $? >&2; exit 5")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	pipe.Read(buf)
	pipe.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("status %d; the command did not live through its broken output", code)
	}
}

// terminal gives the command a terminal, with the size of ours.
func terminal(t *testing.T, vm *oneVM) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal(err)
	}
	inner := "stty rows 33 cols 77; " + host.Binary +
		" exec --tty -- sh -c 'test -t 0 && test -t 1 && stty size; exit 4'"
	cmd := vm.within(t, script, "-qec", inner, "/dev/null")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	r := run(t, cmd, "")
	if r.code != 4 || !strings.Contains(r.out, "33 77") {
		t.Errorf("status %d, %q; want 4 and a terminal of 33 lines and 77 columns", r.code, r.out)
	}
}
