package slurmlab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
)

// TestSallocSteps is salloc with a script that says srun more than once: with PrologFlags=Contain its steps are in one
// VM, which has the size of the allocation, and ends with it.
func TestSallocSteps(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{Contain: true, CPUs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	salloc := func(t *testing.T, tasks int, script string) []string {
		t.Helper()
		out, err := run(l.Command(ctx, User, "salloc", "--vm=micro", fmt.Sprintf("-n%d", tasks), "sh", "-c", script))
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		l.awaitNoVM(ctx, t)
		return strings.Fields(out)
	}
	const boot = "cat /proc/sys/kernel/random/boot_id"
	t.Run("one after the other", func(t *testing.T) {
		got := salloc(t, 1, `srun sh -c "echo a >/tmp/x; `+boot+`"; srun sh -c "cat /tmp/x; `+boot+`"`)
		if len(got) != 3 || got[0] != got[2] || got[1] != "a" || got[0] == strings.TrimSpace(string(host)) {
			t.Errorf("%q", got)
		}
	})
	t.Run("at the same time, and a smaller one first", func(t *testing.T) {
		got := salloc(t, 2, `srun -n1 sh -c "nproc; `+boot+`"
srun -n1 --exact --mem=600 sh -c "until [ -e /tmp/b ]; do sleep 0.1; done; `+boot+`" &
srun -n1 --exact --mem=600 sh -c "touch /tmp/b; `+boot+`"; wait`)
		if len(got) != 4 || got[0] != "2" || got[1] != got[2] || got[2] != got[3] {
			t.Errorf("%q", got)
		}
	})
	t.Run("a step is killed", func(t *testing.T) {
		up := l.Home() + "/up"
		got := salloc(t, 2, fmt.Sprintf(`srun -n1 sh -c "%[1]s"
srun -n1 sh -c "touch %[2]s; exec sleep 1000" & while [ ! -e %[2]s ]; do sleep 0.1; done
scancel --signal=KILL $SLURM_JOB_ID.1; wait $!; echo $?
srun -n1 sh -c "%[1]s; ps | grep -c '[s]leep 1000'"; true`, boot, up))
		if len(got) != 4 || got[0] != got[2] || got[1] != "137" || got[3] != "0" {
			t.Errorf("%q", got)
		}
	})
	t.Run("no step, no VM", func(t *testing.T) {
		c := l.Command(ctx, User, "salloc", "--vm=micro", "sleep", "4")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		vms, err := api.NewClient(l.host.Socket).VMs(ctx)
		queue, _ := l.Slurm(ctx, "root", "squeue", "-h", "-o", "%T")
		if err != nil || len(vms) != 0 || queue != "RUNNING\n" {
			t.Errorf("%v %v, in the queue: %q", vms, err, queue)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Run("srun alone", func(t *testing.T) {
		out, err := run(l.Command(ctx, User, "srun", "--vm=micro", "sh", "-c", boot))
		if err != nil || out == string(host) || len(out) != len(host) {
			t.Errorf("%q %v", out, err)
		}
		l.awaitNoVM(ctx, t)
	})
	t.Run("a batch script", func(t *testing.T) {
		out, err := run(l.Command(ctx, User, "sbatch", "--wait", "--vm=micro", "--output="+l.Home()+"/batch.out",
			"--wrap", boot+`; srun sh -c "`+boot+`"`))
		text, _ := os.ReadFile(l.Home() + "/batch.out")
		got := strings.Fields(string(text))
		if err != nil || len(got) != 2 || got[0] != got[1] {
			t.Errorf("%q %q %v", out, got, err)
		}
		l.awaitNoVM(ctx, t)
	})
}

// awaitNoVM waits until the agent has no VM: an allocation's last until Slurm has ended it.
func (l *Lab) awaitNoVM(ctx context.Context, t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		vms, err := api.NewClient(l.host.Socket).VMs(ctx)
		if err == nil && len(vms) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("VMs behind the end of the allocation: %v %v", vms, err)
		}
	}
}
