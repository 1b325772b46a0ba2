package conform

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Cases are all of them. Those that need long come first: the others run beside them. One that only waits is among
// those that are alone: its slot would be missed.
func Cases() []Case {
	cases := []Case{
		{Name: "suspend and resume",
			Holds: "the VM is really paused by the batch system's suspend, and the job goes on after resume, with the " +
				"right time",
			run: suspend},
		{Name: "accounting", Holds: "CPU time and peak memory in the batch system's records are the VM's",
			run: accounting},
		{Name: "out of memory", Holds: "a job beyond its memory fails, as on the host, and the host is unharmed",
			run: outOfMemory},
		{Name: "array", Holds: "each element has a VM and an output of its own", run: array},
		{Name: "tasks", Holds: "all tasks of one job enter one VM", run: tasks},
		{Name: "TERM trap", Holds: "cancelling lets the job clean up in its VM, as on the host", run: trap},
		{Name: "KILL", Holds: "killing the job ends its VM at once", run: kill},
		{Name: "mixed", Holds: "a job on the host runs beside a job in a VM", run: mixed},
		{Name: "own VM", Holds: "the job runs in a virtual machine and not on the host", run: ownVM},
		{Name: "standard input", Holds: "the job reads what it would on the host", run: stdin},
		{Name: "environment", Holds: "100 kB in one variable, blanks, quotes and UTF-8 arrive unchanged",
			run: environment},
		{Name: "arguments", Holds: "$0 and arguments with blanks, quotes and UTF-8 are as on the host", run: arguments},
		{Name: "directory", Holds: "working directory, umask and owner of what is written are as on the host",
			run: directory},
		{Name: "limits", Holds: "resource limits are as on the host, soft and hard, but for core files", run: limits},
		{Name: "input file", Holds: "a script works through a real file of the user", run: inputFile},
		{Name: "kernel files", Holds: "a job that asks for the host's /proc, or for / with it, gets nothing of it",
			run: kernelFiles},
		{Name: "output", Holds: "standard output and errors are separate and complete (1 MB)", run: output},
	}
	for _, code := range []int{0, 3, 255} {
		cases = append(cases, Case{Name: fmt.Sprintf("exit %d", code), Holds: "the exit status is as on the host",
			run: endOf(fmt.Sprintf("exit %d", code))})
	}
	for _, signal := range []string{"SEGV", "ABRT", "TERM", "KILL"} {
		// ulimit: nobody needs a core of this.
		cases = append(cases, Case{Name: "death by " + signal,
			Holds: "the signal that ended the job is reported as on the host",
			run:   endOf("ulimit -c 0; kill -" + signal + " $$; sleep 1; echo survived")})
	}
	cases = append(cases, Case{Name: "time limit", Holds: "the job is told (TERM) and then ended, as a timeout",
		alone: true, limit: 8 * time.Minute, run: timeLimit})
	cases = append(cases, Case{Name: "requeue",
		Holds: "a job whose VM can not be started is queued again, and not for ever", alone: true,
		limit: 8 * time.Minute, run: requeue})
	for _, f := range Faults {
		cases = append(cases, Case{Name: "fail closed: " + string(f), Holds: "the job leaves no trace on the host",
			alone: true, run: failClosed(f)})
	}
	return append(cases, Case{Name: "afterwards",
		Holds: "the system works, and nothing is left: process, domain, file, ledger entry", alone: true,
		run: afterwards})
}

const shebang = "#!/bin/sh\n"

// endOf compares how a script ends.
func endOf(script string) func(context.Context, *try) error {
	return func(ctx context.Context, t *try) error {
		vm, metal, err := t.both(ctx, Job{Script: shebang + "echo began\n" + script + "\n"})
		if err != nil {
			return err
		}
		if !strings.Contains(vm.Stdout, "began") || strings.Contains(vm.Stdout, "survived") {
			return fmt.Errorf("did not run as written: %v", vm)
		}
		return sameEnd(vm, metal)
	}
}

func ownVM(ctx context.Context, t *try) error {
	vm, metal, err := t.both(ctx, Job{Script: shebang + "cat /proc/sys/kernel/random/boot_id\n"})
	if err != nil {
		return err
	}
	host, err := bootID()
	if err != nil {
		return err
	}
	inVM := strings.TrimSpace(vm.Stdout)
	// The job on the host shows that the comparison can tell them apart.
	if strings.TrimSpace(metal.Stdout) != host {
		return fmt.Errorf("the job on the host did not see the host's boot ID %s: %v", host, metal)
	}
	if len(inVM) != len(host) || inVM == host {
		return fmt.Errorf("boot ID of the host %s, of the job %v", host, vm)
	}
	return nil
}

// trap: the shell waits with `wait`, which a signal ends at once; a foreground sleep would hold it back.
func trap(ctx context.Context, t *try) error {
	script := shebang + "trap 'echo clean; exit 9' TERM\necho up\nwhile :; do sleep 1 & wait $!; done\n"
	var results [2]Result
	one := func(i int) func() error {
		return func() error {
			id, err := t.submit(ctx, Job{Script: script, Notify: true, Metal: i == 1})
			if err != nil {
				return err
			}
			if err := t.says(ctx, id, "up"); err != nil {
				return err
			}
			if err := t.Cancel(ctx, id); err != nil {
				return err
			}
			results[i], err = t.wait(ctx, id)
			return err
		}
	}
	if err := all(one(0), one(1)); err != nil {
		return err
	}
	vm, metal := results[0], results[1]
	if !strings.Contains(vm.Stdout, "clean") {
		return fmt.Errorf("the trap did not run:\n vm    %v\n metal %v", vm, metal)
	}
	return sameEnd(vm, metal)
}

func kill(ctx context.Context, t *try) error {
	id, err := t.submit(ctx, Job{Script: shebang +
		"trap 'echo clean' TERM\necho up\nwhile :; do sleep 1 & wait $!; done\n"})
	if err != nil {
		return err
	}
	if err := t.says(ctx, id, "up"); err != nil {
		return err
	}
	vm, err := t.machine(ctx, id)
	if err != nil {
		return err
	}
	pid, err := t.qemu(vm.Name)
	if err != nil {
		return err
	}
	if err := t.Kill(ctx, id); err != nil {
		return err
	}
	r, err := t.wait(ctx, id)
	if err != nil {
		return err
	}
	if r.State == Done || r.State == NotStarted {
		return fmt.Errorf("a killed job is said to be %v", r)
	}
	return until(ctx, "QEMU of a killed job ends", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return err != nil
	})
}

// suspend: the job works all the time, also while nobody reads what it writes, so that a VM that is not paused is seen
// to use the CPU. The agent has the clock set before it lets the job read what the host sends, and soon after where it
// did not stop the VM.
func suspend(ctx context.Context, t *try) error {
	const frozen = 50 * time.Millisecond // CPU time in a second that a paused QEMU may use for its monitor
	id, err := t.submit(ctx, Job{Script: shebang + `while [ ! -e ` + t.file("stop") + ` ]; do
	i=0
	while [ $i -lt 2000 ]; do i=$((i+1)); done
done &
n=0 asked=1
while [ ! -e ` + t.file("stop") + ` ]; do
	n=$((n+1)); echo tick $n; sleep 0.2
	` + t.clockLoop() + `done
wait
exit 7
`})
	if err != nil {
		return err
	}
	if err := t.says(ctx, id, "tick 3"); err != nil {
		return err
	}
	vm, err := t.machine(ctx, id)
	if err != nil {
		return err
	}
	pid, err := t.qemu(vm.Name)
	if err != nil {
		return err
	}
	running, err := works(ctx, pid)
	if err != nil {
		return err
	}
	if by := t.pausedBy(ctx, vm.Name, pid); running <= frozen || by != "" {
		return fmt.Errorf("the VM of a busy job used %v of CPU time in a second, paused by %q: nothing can be told "+
			"from that", running, by)
	}
	if err := t.Suspend(ctx, id); err != nil {
		return err
	}
	// What was on its way when the VM was paused may still arrive.
	var by, seen string
	var used time.Duration
	if err := until(ctx, "a suspended job's VM is paused and nothing comes from it", func() bool {
		before, _ := t.Output(id)
		used, err = works(ctx, pid)
		seen, _ = t.Output(id)
		by = t.pausedBy(ctx, vm.Name, pid)
		return err == nil && by != "" && used <= frozen && seen == before
	}); err != nil {
		return fmt.Errorf("%w: it used %v of CPU time in the last second, paused by %q; %v", err, used, by, ctx.Err())
	}
	t.note = by
	after := thawNoticed
	if t.libvirtPaused(ctx, vm.Name) {
		after = 0
	}
	if err := t.Resume(ctx, id); err != nil {
		return err
	}
	clock := clock{try: t, id: id}
	if err := clock.right(ctx, after); err != nil {
		return fmt.Errorf("after resume, paused by %q: %w", by, err)
	}
	if err := until(ctx, "a resumed job goes on", func() bool {
		after, _ := t.Output(id)
		return len(after) > len(seen) && t.pausedBy(ctx, vm.Name, pid) == ""
	}); err != nil {
		return err
	}
	if err := os.WriteFile(t.file("stop"), nil, 0o644); err != nil {
		return err
	}
	r, err := t.wait(ctx, id)
	if err != nil {
		return err
	}
	if r.Code != 7 || r.State != Failed {
		return fmt.Errorf("a job that was suspended and resumed ended otherwise than with its own status 7: %v", r)
	}
	return nil
}

// timeLimit: boot and all count. A job that did not come as far as its trap within its limit tells nothing, and is
// tried with a longer one. timeLimit tries a short limit first: on a machine that has much to do a VM may take longer
// than that to start, or its job to hear and say so before it is killed. With the long one there is time for both.
func timeLimit(ctx context.Context, t *try) error {
	const short, long = 20 * time.Second, 119 * time.Second // some systems count minutes only
	for _, limit := range []time.Duration{short, long} {
		began := time.Now()
		id, err := t.submit(ctx, Job{Limit: limit, Notify: true,
			Script: shebang + "trap 'echo told' TERM USR1\necho up\nwhile :; do sleep 1 & wait $!; done\n"})
		if err != nil {
			return err
		}
		r, err := t.wait(ctx, id)
		if err != nil {
			return err
		}
		told := strings.Contains(r.Stdout, "up") && strings.Contains(r.Stdout, "told")
		if r.State == Timeout && told {
			return nil
		}
		if r.State != Timeout || limit == long {
			return fmt.Errorf("a job beyond its time of %v ended after %v as %v", limit,
				time.Since(began).Round(time.Second), r)
		}
	}
	return nil
}

// outOfMemory grows in small steps: a large one would be refused, not killed. On a system that limits no memory it ends
// by itself.
func outOfMemory(ctx context.Context, t *try) error {
	before := t.Lab().AgentPID()
	vm, metal, err := t.both(ctx, Job{Memory: 400, Script: shebang + "echo up\n" +
		`awk 'BEGIN { for (i = 0; i < 150000; i++) a[i] = sprintf("%8000s", i) }' && echo survived && exit 0` +
		"\nexit $?\n"})
	if err != nil {
		return err
	}
	if !strings.Contains(vm.Stdout, "up") || strings.Contains(vm.Stdout, "survived") || vm.State == Done {
		return fmt.Errorf("1.2 GB in a job of 400 MB:\n vm    %v\n metal %v", vm, metal)
	}
	if vm.State != Failed && vm.State != OutOfMemory {
		return fmt.Errorf("a job beyond its memory ended as %v", vm)
	}
	switch {
	case strings.Contains(metal.Stdout, "survived"):
		t.differs = true
		t.note = "no limit on the host; in a VM: " + string(vm.State)
	case sameEnd(vm, metal) != nil:
		t.differs = true
		t.note = fmt.Sprintf("in a VM %s, status %d; on the host %s, status %d", vm.State, vm.Code,
			metal.State, metal.Code)
	}
	if t.Lab().AgentPID() != before {
		return errors.New("the agent was restarted meanwhile")
	}
	_, err = t.Lab().Client.Host(ctx)
	return err
}

func array(ctx context.Context, t *try) error {
	const elements = 2
	r, err := t.job(ctx, Job{Array: elements, Script: shebang +
		`echo "element ${SLURM_ARRAY_TASK_ID:-${SGE_TASK_ID:-${PBS_ARRAY_INDEX:-${LSB_JOBINDEX:-$CONDOR_PROCESS}}}} $(cat /proc/sys/kernel/random/boot_id)"` + "\n"})
	if err != nil {
		return err
	}
	host, err := bootID()
	if err != nil {
		return err
	}
	numbers, ids := map[string]bool{}, map[string]bool{host: true}
	for line := range strings.Lines(r.Stdout) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "element" {
			numbers[f[1]], ids[f[2]] = true, true
		}
	}
	if r.State != Done || len(numbers) != elements || len(ids) != elements+1 {
		return fmt.Errorf("an array of %d ended as %v", elements, r)
	}
	return nil
}

func tasks(ctx context.Context, t *try) error {
	const together = 2
	r, err := t.job(ctx, Job{Tasks: together, CPUs: 1,
		Argv: []string{"/bin/sh", "-c", `echo "$(cat /proc/sys/kernel/random/boot_id) $(hostname)"; sleep 3`}})
	if err != nil {
		return err
	}
	host, err := bootID()
	if err != nil {
		return err
	}
	lines := strings.Fields(r.Stdout)
	if r.State != Done || len(lines) != 2*together || strings.Contains(r.Stdout, host) ||
		len(slices.Compact(slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(r.Stdout), "\n"))))) != 1 {
		return fmt.Errorf("%d tasks did not enter one VM: %v", together, r)
	}
	return nil
}

func mixed(ctx context.Context, t *try) error {
	id, err := t.submit(ctx, Job{Script: shebang + "echo up\nwhile [ ! -e " + t.file("stop") +
		" ]; do sleep 0.2; done\ncat /proc/sys/kernel/random/boot_id\n"})
	if err != nil {
		return err
	}
	if err := t.says(ctx, id, "up"); err != nil {
		return err
	}
	metal, err := t.job(ctx, Job{Metal: true, Script: shebang + "cat /proc/sys/kernel/random/boot_id\ntouch " +
		t.file("stop") + "\n"})
	if err != nil {
		return err
	}
	vm, err := t.wait(ctx, id)
	if err != nil {
		return err
	}
	host, err := bootID()
	if err != nil {
		return err
	}
	if strings.TrimSpace(metal.Stdout) != host || strings.Contains(vm.Stdout, host) || metal.State != Done ||
		vm.State != Done {
		return fmt.Errorf("host %s:\n vm    %v\n metal %v", host, vm, metal)
	}
	return nil
}

func stdin(ctx context.Context, t *try) error {
	text := "first line\nsecond: ü € \"quoted\"\nno end of line"
	vm, metal, err := t.both(ctx, Job{Stdin: text, Script: shebang + "cat\n"})
	if err != nil {
		return err
	}
	if vm.Stdout != text || metal.Stdout != text {
		return fmt.Errorf("input %q:\n vm    %v\n metal %v", text, vm, metal)
	}
	return nil
}

func environment(ctx context.Context, t *try) error {
	big := strings.Repeat("0123456789", 10_000)
	odd := "a b  c 'd' \"e\" $HOME `f` ü€ * \\n;|&="
	vm, metal, err := t.both(ctx, Job{Env: []string{"GRANGE_CASE_BIG=" + big, "GRANGE_CASE_ODD=" + odd,
		"GRANGE_CASE_EMPTY="},
		Script: shebang + `printf '%s' "$GRANGE_CASE_BIG" | md5sum | cut -c1-32
printf '%s\n' "$GRANGE_CASE_ODD"
echo "empty: ${GRANGE_CASE_EMPTY-unset}"
`})
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%x\n%s\nempty: \n", md5.Sum([]byte(big)), odd)
	if metal.Stdout != want {
		t.note = "on the host the batch system itself changes it"
		want = metal.Stdout
	}
	if vm.Stdout != want {
		return fmt.Errorf("the environment is not as on the host:\n vm    %v\n metal %v", vm, metal)
	}
	return nil
}

var number = regexp.MustCompile(`[0-9]+`)

func arguments(ctx context.Context, t *try) error {
	args := []string{"plain", "two words", "it's", `"quoted"`, "ü €", "$HOME", "*", `back\slash`, "-n"}
	vm, metal, err := t.both(ctx, Job{Args: args,
		Script: shebang + "echo \"$0\"\necho $#\nfor a in \"$@\"; do printf '<%s>\\n' \"$a\"; done\n"})
	if err != nil {
		return err
	}
	// The path of a script holds the job's number in most systems.
	if a, b := number.ReplaceAllString(vm.Stdout, "N"), number.ReplaceAllString(metal.Stdout, "N"); a != b ||
		vm.State != Done {
		return fmt.Errorf("$0 or arguments are not as on the host:\n vm    %v\n metal %v", vm, metal)
	}
	if !strings.Contains(metal.Stdout, "<two words>\n<it's>\n<\"quoted\">\n<ü €>\n<$HOME>\n<*>\n") {
		t.note = "on the host the batch system itself changes some"
	}
	return nil
}

func directory(ctx context.Context, t *try) error {
	vm, metal, err := t.both(ctx, Job{Umask: 0o027, Script: shebang +
		"pwd\numask\nid -u\nid -g\necho \"in $(cat /proc/sys/kernel/random/boot_id)\" >\"wrote.$1.$$\"\nls -n " +
		"\"wrote.$1.$$\" | cut -c1-10\n"})
	if err != nil {
		return err
	}
	if a, b := number.ReplaceAllString(vm.Stdout, "N"), number.ReplaceAllString(metal.Stdout, "N"); a != b ||
		vm.State != Done {
		return fmt.Errorf("not as on the host:\n vm    %v\n metal %v", vm, metal)
	}
	if !strings.Contains(metal.Stdout, "\n0027\n") {
		t.note = "the batch system itself sets the umask"
	}
	host, err := bootID()
	if err != nil {
		return err
	}
	// Both wrote a file, and each its own machine's ID: one of them is not the host's.
	var fromVM, fromMetal int
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := os.ReadFile(t.file(e.Name()))
		info, infoErr := e.Info()
		if err := errors.Join(err, infoErr); err != nil {
			return err
		}
		switch {
		case !strings.HasPrefix(e.Name(), "wrote."):
		case owner(info) != nobody:
			return fmt.Errorf("%s belongs to user %d", e.Name(), owner(info))
		case bytes.Contains(text, []byte(host)):
			fromMetal++
		case bytes.HasPrefix(text, []byte("in ")):
			fromVM++
		}
	}
	if fromVM != 1 || fromMetal != 1 {
		return fmt.Errorf("%d files from a VM and %d from metal in %s: %v", fromVM, fromMetal, t.dir, entries)
	}
	return nil
}

// limits compares all limits. Core files are left out: agents forbid them by default.
func limits(ctx context.Context, t *try) error {
	vm, metal, err := t.both(ctx, Job{Shell: "ulimit -Sn 300; ulimit -St 3600",
		Script: shebang + "grep -v 'Max core' /proc/self/limits; env | grep SLURM_RLIMIT; true\n"})
	if err != nil {
		return err
	}
	here, there := strings.Split(metal.Stdout, "\n"), strings.Split(vm.Stdout, "\n")
	if len(here) < 16 || len(there) != len(here) || vm.State != Done {
		return fmt.Errorf("not as on the host:\n vm    %v\n metal %v", vm, metal)
	}
	for i := range here {
		if here[i] != there[i] {
			return fmt.Errorf("not as on the host:\n vm    %s\n metal %s", there[i], here[i])
		}
	}
	if !regexp.MustCompile(`Max open files +300 `).MatchString(metal.Stdout) {
		t.note = "the batch system itself sets the limits"
	}
	return nil
}

func inputFile(ctx context.Context, t *try) error {
	var text bytes.Buffer
	want := 0
	for i := range 20_000 {
		fmt.Fprintf(&text, "event %d %d\n", i, i*7919%1000)
		want += i * 7919 % 1000
	}
	if err := os.WriteFile(t.file("events.txt"), text.Bytes(), 0o644); err != nil {
		return err
	}
	r, err := t.job(ctx, Job{Args: []string{t.file("events.txt")},
		Script: shebang + "awk '{ s += $3 } END { print NR, s }' \"$1\" >" + t.file("sum.txt") + " && cat " +
			t.file("sum.txt") + "\n"})
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("20000 %d\n", want)
	if written, err := os.ReadFile(t.file("sum.txt")); err != nil || string(written) != sum || r.Stdout != sum {
		return fmt.Errorf("the sum over a real file is %q (%v); wanted %q: %v", written, err, sum, r)
	}
	return nil
}

func output(ctx context.Context, t *try) error {
	r, err := t.job(ctx, Job{Script: shebang + `awk 'BEGIN { for (i = 0; i < 32768; i++) printf "%031d\n", i }'` +
		"\n" + `awk 'BEGIN { for (i = 0; i < 1000; i++) printf "error %d\n", i }' >&2` + "\n"})
	if err != nil {
		return err
	}
	var out, errOut strings.Builder
	for i := range 32768 {
		fmt.Fprintf(&out, "%031d\n", i)
	}
	for i := range 1000 {
		fmt.Fprintf(&errOut, "error %d\n", i)
	}
	if r.Stdout != out.String() || r.Stderr != errOut.String() || r.State != Done {
		return fmt.Errorf("output is not what was written: %v", r)
	}
	return nil
}

// accounting: the wrapper alone uses some hundredths of a second and some megabytes, so that neither figure can be its
// own.
func accounting(ctx context.Context, t *try) error {
	began := time.Now()
	r, err := t.job(ctx, Job{Script: shebang +
		`awk 'BEGIN { for (i = 0; i < 12000; i++) a[i] = sprintf("%8000s", i); while (n < 1000000) n++ }'` +
		"\nsleep 2\n"})
	if err != nil {
		return err
	}
	wall := time.Since(began)
	const mb = 1 << 20
	t.note = fmt.Sprintf("CPU %.1f s, %d MiB", r.CPU.Seconds(), r.MaxRSS/mb)
	switch {
	case r.State != Done:
		return fmt.Errorf("ended as %v", r)
	case r.CPU < 1500*time.Millisecond || r.CPU > 4*wall:
		return fmt.Errorf("CPU time in the records is %v, for a VM that worked for seconds, in %v: %v", r.CPU,
			wall.Round(time.Second), r)
	case r.MaxRSS < 120*mb || r.MaxRSS > 4096*mb:
		return fmt.Errorf("peak memory in the records is %d MiB, for a VM whose job used 96 MiB: %v", r.MaxRSS/mb, r)
	}
	return nil
}
