package slurmlab

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// withoutVM: on a host without a default image, options of a VM without --vm end the job, which would run on the host.
func (l *Lab) withoutVM(ctx context.Context, t *testing.T) {
	file := l.path("etc/plugstack.conf.d/grange.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(l.plugstack(), " default=micro", "", 1))
	defer write(l.plugstack())
	for option, value := range map[string]string{"--vm-mount": "/opt", "--vm-publish": "8888"} {
		out, err := l.Slurm(ctx, User, "srun", option+"="+value, "echo", "on the host")
		if err == nil || !strings.Contains(err.Error(), option+" without a virtual machine") || out != "" {
			t.Errorf("%s: %q, %v", option, out, err)
		}
	}
	if out, err := l.Slurm(ctx, User, "srun", "echo", "on the host"); err != nil || out != "on the host\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// options are tried in the smoke's lab: what people write, and that it arrives. Those that start a VM run together.
func (l *Lab) options(ctx context.Context, t *testing.T, host string) {
	refused := func(name, says string, args ...string) {
		t.Run(name, func(t *testing.T) {
			out, err := l.Slurm(ctx, User, "sbatch", append(args, "--wrap", "true")...)
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q %v", out, err)
			}
		})
	}
	refused("VM and no VM", "together", "--vm=micro", "--no-vm")
	refused("no shape of that name", "no shape huge", "--vm=micro:huge")
	refused("no image", "wanted IMAGE[:SHAPE]", "--vm=:large")
	refused("not a name", "wanted IMAGE[:SHAPE]", "--vm=../micro")
	refused("no shape of a container image", "wanted IMAGE[:SHAPE]", "--vm=oci://localhost/debian:12,")
	refused("not a place", "wanted IMAGE[:SHAPE]", "--vm=oci://localhost/$(id)")
	refused("not a port", "wanted PORT", "--vm=micro", "--vm-publish=8888,http")
	refused("a port for nobody", "wanted PORT", "--vm=micro", "--vm-publish=8888@")
	refused("relative mount", "absolute", "--vm=micro", "--vm-mount=data")

	t.Run("list", func(t *testing.T) {
		if out, err := l.Slurm(ctx, User, "sbatch", "--vm=list"); err != nil || !strings.Contains(out, "image micro\n") {
			t.Errorf("%q %v", out, err)
		}
	})

	t.Run("the image in the comment", func(t *testing.T) {
		script := l.Home() + "/commented"
		if err := os.WriteFile(script, []byte("#!/bin/sh\n#SBATCH --vm=micro\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for want, args := range map[string][]string{"grange:vm=micro": {script}, "mine": {"--comment=mine", "--wrap=true"},
			"mine too grange:vm=micro": {"--comment=mine too", script}} {
			id, err := l.Slurm(ctx, User, "sbatch", append([]string{"--parsable", "--hold"}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			id = strings.TrimSpace(id)
			got, err := l.Slurm(ctx, User, "squeue", "--noheader", "--jobs="+id, "--Format=Comment:100")
			if strings.TrimSpace(got) != want {
				t.Errorf("%q: %q, not %q; %v", args, got, want, err)
			}
			if err := l.Cancel(ctx, id); err != nil {
				t.Error(err)
			}
		}
	})

	share := l.path("share")
	for _, dir := range []string{share, share + "/a", share + "/b"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"a/x": "one\n", "b/y": "two\n"} {
		if err := os.WriteFile(share+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, b := share+"/a:/mnt/a:ro", share+"/b:/mnt/b"
	script := func(lines string) string {
		f, err := os.CreateTemp(l.Home(), "script")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteString("#!/bin/sh\n" + lines +
			"\ncat /proc/sys/kernel/random/boot_id /mnt/a/x /mnt/b/y; echo \"$HOME-$GRANGE_CASE\"\n")
		f.Chmod(0o755)
		return f.Name()
	}
	seen := func(t *testing.T, out string) {
		t.Helper()
		lines := strings.Split(out, "\n")
		if len(lines) < 3 || lines[0]+"\n" == host || len(lines[0])+1 != len(host) || lines[1] != "one" ||
			lines[2] != "two" {
			t.Errorf("%q", out)
		}
	}
	batch := func(t *testing.T, name string, args ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := strings.ReplaceAll(l.Home()+"/"+name+".out", " ", "-")
			id, err := l.Slurm(ctx, User, "sbatch", append([]string{"--parsable", "--output=" + file}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			id = strings.TrimSpace(id)
			if err := l.remember(id, &job{out: file, err: file}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Wait(ctx, id); err != nil {
				t.Fatal(err)
			}
			out, _ := l.Output(id)
			seen(t, out)
		})
	}
	t.Run("and", func(t *testing.T) {
		batch(t, "lines of the script", script("#SBATCH --vm=micro\n#SBATCH --vm-mount="+a+","+b))
		batch(t, "two mounts and no environment", "--export=NONE", "--vm=micro", "--vm-mount="+a,
			"--vm-mount="+b, script(""))
		front := func(name string, args ...string) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
				defer cancel()
				out, err := run(l.Command(ctx, User, args[0], args[1:]...))
				if err != nil {
					t.Fatal(err)
				}
				seen(t, out)
			})
		}
		front("srun", "srun", "--vm=micro", "--vm-mount="+a+","+b, script(""))
		front("srun in salloc", "salloc", "--vm=micro", "--vm-mount="+a+","+b, "srun", script(""))
	})
	t.Run("metal, and no environment", func(t *testing.T) {
		// Slurm itself drops the option here, and the host's default would be a VM.
		out, err := l.Slurm(ctx, User, "sbatch", "--parsable", "--export=NONE", "--no-vm",
			"--output="+l.Home()+"/metal.out", "--wrap", "cat /proc/sys/kernel/random/boot_id")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.remember(strings.TrimSpace(out),
			&job{out: l.Home() + "/metal.out", err: l.Home() + "/metal.out"}); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Wait(ctx, strings.TrimSpace(out)); err != nil || r.Stdout != host {
			t.Errorf("%v %v", r, err)
		}
	})
	t.Run("the environment does not lead the wrapper", func(t *testing.T) {
		cmd := l.Command(ctx, User, "srun", "--vm=micro", "/bin/sh", "-c", "cat /proc/sys/kernel/random/boot_id")
		cmd.Env = append(cmd.Env, "GRANGE_SOCKET=/nowhere", "SLURM_TASK_PROLOG=/bin/false")
		if out, err := run(cmd); err != nil || out == host || len(out) != len(host) {
			t.Errorf("%q %v", out, err)
		}
	})
}
