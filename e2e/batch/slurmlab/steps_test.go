package slurmlab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestSteps is a batch script that says srun: its steps run in the script's own VM, and nothing that it asks of srun
// runs on the host.
func TestSteps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	run := func(name, script string, tasks int, check func(t *testing.T, r conform.Result)) {
		t.Run(name, func(t *testing.T) {
			check(t, l.try(ctx, t, conform.Job{Script: "#!/bin/sh\n" + script, Image: "micro", CPUs: tasks}))
		})
	}
	run("a step in the same VM", `
export FOO='a b' BIG=$(head -c 100000 /dev/zero | tr '\0' x)
here=$(cat /proc/sys/kernel/random/boot_id)
echo input | srun sh -c "[ \$(cat /proc/sys/kernel/random/boot_id) = $here ] && echo same; echo \$FOO \${#BIG} \$SLURM_STEP_ID; cat; pwd; echo oops >&2; exit 6"
echo status $?
pwd
`, 1, func(t *testing.T, r conform.Result) {
		lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		if r.State != conform.Done || len(lines) != 6 || strings.Join(lines[:3], "|") != "same|a b 100000 0|input" ||
			lines[4] != "status 6" || lines[3] != lines[5] {
			t.Errorf("%v", r)
		}
		if !strings.Contains(r.Stderr, "oops") {
			t.Errorf("the step's errors are lost: %v", r)
		}
	})
	run("two tasks and what they leave", `
echo 1 > f; cat f
srun -n 2 -l sh -c 'echo task $SLURM_PROCID; echo 2 >> f.$SLURM_PROCID'
cat f.0 f.1
for i in 1 2 3 4 5; do srun true || echo failed; done
srun no-such-command; echo status $?
`, 2, func(t *testing.T, r conform.Result) {
		for _, want := range []string{"0: task 0\n", "1: task 1\n", "2\n2\n", "status 127\n"} {
			if !strings.Contains(r.Stdout, want) {
				t.Errorf("no %q in %v", want, r)
			}
		}
		if strings.Contains(r.Stdout, "failed") {
			t.Errorf("%v", r)
		}
	})
	evil := filepath.Join(l.Home(), "evil")
	marker := filepath.Join(l.Home(), "ran-on-the-host")
	if err := os.WriteFile(evil, fmt.Appendf(nil, "#!/bin/sh\nhead -c 40 /proc/sys/kernel/random/boot_id >> %s\n",
		marker), 0o755); err != nil {
		t.Fatal(err)
	}
	run("nothing on the host", fmt.Sprintf(`
export SLURM_TASK_EPILOG=%[1]s SLURM_EPILOG=%[1]s SLURM_PROLOG=%[1]s SLURM_TASK_PROLOG=%[1]s SLURM_CONF=/dev/null
for o in --prolog --epilog --task-prolog --task-epilog --bcast --chdir -o -e -i --export; do srun $o=%[1]s true; echo $o $?; done
srun --multi-prog %[1]s; echo $?
srun --no-vm %[1]s; echo $?
srun echo fine
`, evil), 1, func(t *testing.T, r conform.Result) {
		if strings.Count(r.Stderr, "not possible from inside a VM") != 12 || !strings.HasSuffix(r.Stdout, "fine\n") {
			t.Errorf("%v", r)
		}
		if text, err := os.ReadFile(marker); err == nil {
			t.Errorf("it ran on the host: %q", text)
		}
		// A directory of the host that the VM names as its own, and one that it puts a link for in the place of a
		// directory that it has.
	})
	secret, err := os.MkdirTemp("/tmp", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(secret)
	deep := filepath.Join(l.Home(), "deep")
	for _, err := range []error{os.Chmod(secret, 0o755),
		os.WriteFile(filepath.Join(secret, "word"), []byte("swordfish\n"), 0o644),
		os.MkdirAll(filepath.Join(deep, "data"), 0o755), os.Chmod(deep, 0o777),
		os.WriteFile(filepath.Join(deep, "data", "word"), []byte("open\n"), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	run("no directory but the script's", fmt.Sprintf(`#SBATCH --vm-mount=%[2]s:/above,%[2]s/data
srun cat %[2]s/data/word
mkdir -p sub %[1]s; cd sub; echo below > f; srun cat f
cd %[1]s; srun sh -c 'pwd; cat word'
cd /above; mv data away; ln -s %[1]s data
srun sh -c 'cat %[2]s/data/word'
srun cat /above/away/word
`, secret, deep), 1, func(t *testing.T, r conform.Result) {
		if r.Stdout != "open\nbelow\n"+secret+"\nopen\n" ||
			!strings.Contains(r.Stderr, "the VM does not get "+deep+"/data") {
			t.Errorf("%v", r)
		}
	})
}
