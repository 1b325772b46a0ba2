package drivers_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/slurmlab"
	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/slurm/setup"
	"github.com/grange-project/grange/internal/program"
)

// TestSlurmOCI is what the conformance cases do not know of bundles: srun, salloc, what a site's own lines make of jobs
// that name none, and that check finds the holes that are there. The lines are those of the guide.
func TestSlurmOCI(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("takes a minute: `make test-batch` runs this")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, err := slurmlab.Start(ctx, slurmlab.Options{OCI: true, Extra: "LaunchParameters=send_gids"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("slurmctld:\n%s\nslurmd:\n%s", l.Log("slurmctld"), l.Log("slurmd"))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := l.Bundle("")
	if err != nil {
		t.Fatal(err)
	}
	const where = `echo "boot $(cat /proc/sys/kernel/random/boot_id)"; pwd; echo "$SLURM_PROCID $SLURM_LOCALID $SLURM_CPUS_ON_NODE $SLURMD_NODENAME $ODD"`
	run := func(t *testing.T, env []string, args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		cmd := l.Command(ctx, slurmlab.User, args[0], args[1:]...)
		cmd.Env = append(cmd.Env, env...)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	inVM := regexp.MustCompile(`(?m)^boot [0-9a-f-]{36}$`)
	must := func(t *testing.T, out string, err error) {
		t.Helper()
		if err != nil || !inVM.MatchString(out) || strings.Contains(out, strings.TrimSpace(string(boot))) {
			t.Errorf("%q %v, and the host is %s", out, err, boot)
		}
	}
	refuses := func(t *testing.T, says string, args ...string) {
		t.Helper()
		out, err := run(t, nil, append(args, "/bin/sh", "-c", where)...)
		if err == nil || !strings.Contains(out, says) || inVM.MatchString(out) {
			t.Errorf("%q %v", out, err)
		}
	}
	t.Run("srun", func(t *testing.T) {
		// A preloaded library would be seen in what the host's shell says of it.
		out, err := run(t, []string{"LD_PRELOAD=/nowhere/x.so", "ODD=a b"}, "srun", "--container="+bundle,
			"--chdir=/tmp", "/bin/sh", "-c", where)
		must(t, out, err)
		if !strings.Contains(out, "\n/tmp\n0 0 1 "+l.Node()+" a b\n") {
			t.Errorf("%q", out)
		}
	})
	t.Run("salloc", func(t *testing.T) { refuses(t, "use_interactive_step", "salloc", "--container="+bundle, "srun") })
	t.Run("no bundle", func(t *testing.T) { refuses(t, "No such file", "srun", "--container="+bundle+"/none") })
	t.Run("another's bundle", func(t *testing.T) {
		dir := filepath.Join(l.Home(), "another")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"),
			[]byte(`{"ociVersion":"1.0.0","root":{"path":"rootfs"},"process":{"args":["sh"],"cwd":"/"}}`),
			0o644); err != nil {
			t.Fatal(err)
		}
		refuses(t, "bad-bundle", "srun", "--container="+dir)
	})

	t.Run("a prolog that does nothing", func(t *testing.T) {
		prolog := filepath.Join(l.Dir(), "bin/prolog")
		text, err := os.ReadFile(prolog)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(prolog, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		refuses(t, "oci-not-ready", "srun", "--container="+bundle)
		if err := os.WriteFile(prolog, text, 0o755); err != nil {
			t.Fatal(err)
		}
	})

	lua := filepath.Join(l.Dir(), "etc/job_submit.lua")
	if err := os.WriteFile(lua, []byte(strings.ReplaceAll(guideLua(t), "/srv/vm/el9", bundle)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := l.Reconfigure(ctx, "JobSubmitPlugins=lua"); err != nil {
		t.Fatal(err)
	}
	t.Run("lua, srun", func(t *testing.T) { refuses(t, "--container="+bundle, "srun") })
	t.Run("lua, salloc", func(t *testing.T) { refuses(t, "--container="+bundle, "salloc", "srun") })
	t.Run("lua, sbatch", func(t *testing.T) {
		file := filepath.Join(l.Home(), "lua.out")
		said, err := run(t, nil, "sbatch", "--wait", "--output="+file, "--wrap", where)
		out, _ := os.ReadFile(file)
		must(t, said+string(out), err)
	})
	t.Run("check", func(t *testing.T) {
		holes := func(want batch.Level, ids ...string) {
			t.Helper()
			site, err := setup.ReadSite(ctx, program.Start, l.Conf())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range setup.Check(site) {
				for _, id := range ids {
					if f.ID == id && f.Level != want {
						t.Errorf("%+v, want %s", f, want)
					}
				}
			}
		}
		holes(batch.Good, "oci", "oci-prolog", "plugstack")
		holes(batch.Advice, "oci-steps")
		if err := os.Remove(filepath.Join(l.Dir(), "etc/oci.conf")); err != nil {
			t.Fatal(err)
		}
		holes(batch.Broken, "oci")
		if err := os.WriteFile(lua, []byte("job.container = x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		holes(batch.Broken, "oci-steps")
	})
}

// guideLua is the job_submit.lua of the guide.
func guideLua(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/guide/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rest := range strings.Split(string(text), "```lua\n")[1:] {
		if script, _, ok := strings.Cut(rest, "```"); ok && strings.Contains(script, "function slurm_job_submit") {
			return script
		}
	}
	t.Fatal("the guide has no job_submit.lua")
	return ""
}
