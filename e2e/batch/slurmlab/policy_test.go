package slurmlab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestPolicyBySlurm: what the kernel does not know of a job, the agent asks of slurmctld: account and partition for the
// site's policy, and, as this Slurm confines nothing, CPUs and memory. When slurmctld does not answer, nothing starts.
func TestPolicyBySlurm(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
	defer cancel()
	l, err := Start(ctx, Options{Unconfined: true, Extra: "PartitionName=special Nodes=ALL State=UP OverSubscribe=NO", Plugstack: "default=@policy", Agent: `
[[policy]]
name = "closed account"
accounts = ["evil*"]
deny = "it has no VMs here"
[[policy]]
name = "special partition"
queues = ["special"]
image = "special"
[[policy]]
name = "everybody"
image = "micro"
`})
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(t)
	if _, err := l.host.Client.MakeImage(ctx, api.ImageRequest{Name: "special"}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	submit := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		out := l.Home() + "/" + name
		id, err := l.Slurm(ctx, User, "sbatch",
			append([]string{"--parsable", "--output=" + out + ".out", "--error=" + out + ".err"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		id = strings.TrimSpace(id)
		if err := l.remember(id, &job{out: out + ".out", err: out + ".err"}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	ends := func(t *testing.T, id string) conform.Result {
		t.Helper()
		r, err := l.Wait(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const tells = "echo $GRANGE_IMAGE $(nproc) $GRANGE_MEMORY"
	t.Run("the partition decides the image, Slurm the size", func(t *testing.T) {
		r := ends(t, submit(t, "special", "--partition=special", "--account=good", "--cpus-per-task=2", "--mem=1000",
			"--wrap", tells))
		var image string
		var cpus, memory int
		fmt.Sscan(r.Stdout, &image, &cpus, &memory)
		if image != "special" || cpus != 2 || memory < 700 || memory >= 1000 { // QEMU has its part
			t.Errorf("%v", r)
		}
	})
	t.Run("and no other job's", func(t *testing.T) {
		r := ends(t, submit(t, "usual", "--account=good", "--mem-per-cpu=500", "--wrap", tells))
		var image string
		var cpus, memory int
		fmt.Sscan(r.Stdout, &image, &cpus, &memory)
		if image != "micro" || cpus != 1 || memory < 250 || memory >= 500 {
			t.Errorf("%v", r)
		}
	})
	t.Run("memory for each CPU", func(t *testing.T) {
		r := ends(t, submit(t, "each", "--cpus-per-task=2", "--mem-per-cpu=500", "--wrap", tells))
		var image string
		var cpus, memory int
		fmt.Sscan(r.Stdout, &image, &cpus, &memory)
		if cpus != 2 || memory < 700 || memory >= 1000 {
			t.Errorf("%v", r)
		}
	})
	t.Run("a closed account", func(t *testing.T) {
		r := ends(t, submit(t, "evil", "--account=evil1", "--wrap", "echo ran"))
		if r.State != conform.NotStarted || r.Code != 197 || r.Runs != 1 || r.Stdout != "" ||
			!strings.Contains(r.Stderr, `"closed account"`) {
			t.Errorf("%v", r)
		}
	})
	t.Run("without slurmctld", func(t *testing.T) {
		id := submit(t, "alone", "--no-vm", "--wrap", fmt.Sprintf(`echo up; while [ ! -e go ]; do sleep 0.1; done
began=$(date +%%s); %s --socket %s exec --batch slurm -- echo ran; echo status $? after $(($(date +%%s) - began)) s`, l.wrapper(), l.host.Socket))
		said := func(text string) string {
			t.Helper()
			for ctx.Err() == nil {
				if out, _ := l.Output(id); strings.Contains(out, text) {
					return out
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Fatalf("the job does not say %q", text)
			return ""
		}
		said("up")
		if err := l.KillDaemon("slurmctld"); err != nil {
			t.Fatal(err)
		}
		defer l.StartSlurmctld(ctx)
		if err := os.WriteFile(l.Home()+"/go", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		out := said("status")
		_, errs := l.Output(id)
		t.Log(out, errs)
		var status, took int
		fmt.Sscanf(out[strings.Index(out, "status"):], "status %d after %d s", &status, &took)
		if status != 199 || took > 100 || strings.Contains(out, "ran") || !strings.Contains(errs, "[unknown-size]") &&
			!strings.Contains(errs, "[unknown-queue]") {
			t.Errorf("status %d after %d s: %s", status, took, errs)
		}
	})
}
