package condorlab_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/batch/condorlab"
	"github.com/grange-project/grange/e2e/batch/conform"
)

// TestPool is what HTCondor alone has: files that it sends, attributes of submit files, ads in a directory of the
// user's.
func TestPool(t *testing.T) {
	if os.Getenv("GRANGE_BATCH") == "" {
		t.Skip("needs a Debian tree with HTCondor: `make test-batch` makes one and runs this")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	l, err := condorlab.Start(ctx, condorlab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	hostID := strings.TrimSpace(string(host))
	put := func(name, text string) string {
		path := filepath.Join(l.Home(), name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	get := func(name string) string { text, _ := os.ReadFile(filepath.Join(l.Home(), name)); return string(text) }
	submit := func(name string, lines ...string) string {
		t.Helper()
		path := put(name+".sub", strings.Join(append([]string{"initialdir = " + l.Home(), "output = " + name + ".out",
			"error = " + name + ".err"}, lines...), "\n")+"\nqueue\n")
		out, err := l.Condor(ctx, "nobody", "condor_submit", "-terse", path)
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(out, " ")
		return id
	}
	wait := func(id string) string {
		t.Helper()
		for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			status, err := l.Condor(ctx, "root", "condor_history", id, "-af", "JobStatus", "ExitCode")
			if err == nil && strings.TrimSpace(status) != "" {
				return strings.TrimSpace(status)
			}
			if time.Now().After(deadline) {
				queue, _ := l.Condor(ctx, "root", "condor_q", id, "-af", "JobStatus", "HoldReason", "LastVacateReason")
				t.Fatalf("job %s does not end: %s\n%s", id, queue, l.Logs())
			}
		}
	}

	t.Run("files are sent to the scratch directory and back", func(t *testing.T) {
		put("in.txt", "from the access point\n")
		put("files.sh", "#!/bin/sh\npwd; cat in.txt; cat /proc/sys/kernel/random/boot_id >where.txt; echo "+
			"\"$_CONDOR_SCRATCH_DIR\"\n[ -f \"$_CONDOR_JOB_AD\" ] && echo ad\n")
		id := submit("files", "executable = files.sh", "should_transfer_files = YES",
			"when_to_transfer_output = ON_EXIT", "transfer_input_files = in.txt", `+VMImage = "micro"`)
		if status := wait(id); status != "4 0" {
			t.Fatalf("%s: %s%s", status, get("files.out"), get("files.err"))
		}
		out, where := strings.Split(get("files.out"), "\n"), strings.TrimSpace(get("where.txt"))
		if len(out) < 4 || out[0] != out[2] || !strings.HasPrefix(out[0], "/var/lib/condor/execute/dir_") ||
			out[1] != "from the access point" || out[3] != "ad" {
			t.Errorf("%q", out)
		}
		if len(where) != len(hostID) || where == hostID {
			t.Errorf("it ran on the machine with boot ID %q; the host's is %q", where, hostID)
		}
	})

	t.Run("a slot's ad of the user's own gives nothing", func(t *testing.T) {
		// On the host, in its own scratch directory, a job may do all this.
		put("forge.sh", `#!/bin/sh
grange exec --batch htcondor --socket `+l.Lab().Socket+` -- /bin/sh -c 'echo true: $(nproc)'
cp .machine.ad forged; mv .machine.ad kept
sed 's/^Cpus = .*/Cpus = 64/; s/^Memory = .*/Memory = 99999/' forged >.machine.ad
grange exec --batch htcondor --socket `+l.Lab().Socket+` -- echo forged; echo "status $?"
rm .machine.ad; cp kept /dev/null; cat .job.ad >/dev/null; mv .job.ad .machine.ad
grange exec --batch htcondor --socket `+l.Lab().Socket+` -- echo swapped; echo "status $?"
rm .machine.ad; mkfifo .machine.ad
timeout 20 grange exec --batch htcondor --socket `+l.Lab().Socket+` -- echo pipe; echo "status $?"
`)
		id := submit("forge", "executable = forge.sh", "should_transfer_files = YES",
			"when_to_transfer_output = ON_EXIT", `transfer_output_files = ""`, "+WantVM = False",
			"request_memory = 700")
		if status := wait(id); status != "4 0" {
			t.Fatalf("%s: %s%s", status, get("forge.out"), get("forge.err"))
		}
		out, errs := get("forge.out"), get("forge.err")
		if !strings.HasPrefix(out, "true: 1\n") || strings.Count(out, "status 19") != 3 ||
			strings.Contains(out, "forged") || strings.Contains(out, "swapped") || strings.Contains(out, "pipe") {
			t.Errorf("%s\n%s", out, errs)
		}
		if strings.Count(errs, "[strange-job]") != 3 {
			t.Errorf("%s", errs)
		}
		if _, err := l.Lab().Client.Host(ctx); err != nil {
			t.Errorf("the agent: %v", err)
		}
	})

	t.Run("what runs beside a job on the host keeps it away", func(t *testing.T) {
		marker := filepath.Join(l.Home(), "ran-on-the-host")
		program := `"` + put("beside.sh", "#!/bin/sh\ntouch "+marker+"\n") + `"`
		ids := map[string]string{}
		for name, value := range map[string]string{
			"PreCmd": program, "PostCmd": program, "ToolDaemonCmd": program, "TransferPlugins": program,
			"WantDocker": "True", "WantContainer": "True",
			"WantSIF": "True", "DockerImage": `"x"`, "ContainerImage": `"x"`, "HookKeyword": `"X"`,
			"RequestedChroot": `"/x"`, "InteractiveJob": "True",
			// Nothing where it is matched, and a program for the starter.
			"precmd": `ifThenElse(TARGET.Machine isnt undefined, undefined, ` + program + `)`,
		} {
			ids[name] = submit("beside-"+name, "executable = /bin/true", "transfer_executable = False",
				"should_transfer_files = NO", "+"+name+" = "+value)
		}
		// A job that is submitted later, and runs, shows that these were looked at.
		if r, err := l.Submit(ctx, conform.Job{Argv: []string{"/bin/true"}}); err != nil {
			t.Error(err)
		} else if got, err := l.Wait(ctx, r); err != nil || got.State != conform.Done {
			t.Errorf("%v, %v", got, err)
		}
		for name, id := range ids {
			said, err := l.Condor(ctx, "root", "condor_q", id, "-af", "JobStatus", "NumShadowStarts")
			if err != nil || strings.TrimSpace(said) != "1 undefined" {
				t.Errorf("a job with %s: %q, %v", name, said, err)
			}
			l.Condor(ctx, "root", "condor_rm", id)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Error("a program ran on the host")
		}
	})

	t.Run("beside a job in a virtual machine nobody gets a shell on the host", func(t *testing.T) {
		shell := func(name string, lines ...string) string {
			t.Helper()
			put("sleep.sh", "#!/bin/sh\necho up; sleep 300\n")
			id := submit(name, append([]string{"executable = sleep.sh", "transfer_executable = False",
				"should_transfer_files = NO", "stream_output = True"}, lines...)...)
			defer l.Condor(ctx, "root", "condor_rm", id)
			for deadline := time.Now().Add(4 * time.Minute); !strings.Contains(get(name+".out"),
				"up"); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("job %s does not run: %s\n%s", id, get(name+".err"), l.Logs())
				}
			}
			_, err := l.Condor(ctx, "nobody", "condor_ssh_to_job", id, "id")
			if err == nil {
				t.Fatalf("a shell beside job %s", id)
			}
			return err.Error()
		}
		const refused = "ENABLE_SSH_TO_JOB=false"
		if said := shell("shell"); !strings.Contains(said, refused) {
			t.Error(said)
		}
		if said := shell("metal-shell", "+WantVM = False"); strings.Contains(said, refused) { // the pool has no sshd
			t.Error(said)
		}
	})

	t.Run("a job of the local universe does not run", func(t *testing.T) {
		put("local.sh", "#!/bin/sh\ntouch "+filepath.Join(l.Home(), "local-ran")+"\n")
		id := submit("local", "universe = local", "executable = local.sh")
		for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			said, err := l.Condor(ctx, "root", "condor_q", id, "-af", "JobStatus")
			if err == nil && strings.TrimSpace(said) == "5" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("status %q, %v", said, err)
			}
		}
		if _, err := os.Stat(filepath.Join(l.Home(), "local-ran")); err == nil ||
			!strings.Contains(get("local.err"), "[no-job-ad]") {
			t.Errorf("it ran: %v; %s", err == nil, get("local.err"))
		}
		l.Condor(ctx, "root", "condor_rm", id)
	})

	t.Run("a wish that makes no sense is held, with the reason", func(t *testing.T) {
		id := submit("bad", "executable = /bin/true", "transfer_executable = False", "should_transfer_files = NO",
			`+WantVM = "maybe"`)
		var said string
		for deadline := time.Now().Add(4 * time.Minute); !strings.HasPrefix(said,
			"5 197 grange: no virtual machine"); time.Sleep(200 * time.Millisecond) {
			said, _ = l.Condor(ctx, "root", "condor_q", id, "-af", "JobStatus", "HoldReasonSubCode", "HoldReason")
			if time.Now().After(deadline) {
				t.Fatalf("%q; %s", said, get("bad.err"))
			}
		}
		if errs := get("bad.err"); !strings.Contains(errs, "[bad-wish]") {
			t.Errorf("%s", errs)
		}
		l.Condor(ctx, "root", "condor_rm", id)
	})

	t.Run("check finds nothing wrong", func(t *testing.T) {
		out, err := l.Condor(ctx, "root", "grange", "htcondor", "check", "--socket", l.Lab().Socket)
		if err != nil || !strings.Contains(out, "runs jobs and takes jobs") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
