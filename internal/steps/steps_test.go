package steps

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/guest"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		line    string
		allowed string
		command string
		refused string
	}{
		{line: "./step a -n 5", command: "./step a -n 5"},
		{line: "-n 4 -N1 --cpus-per-task=2 -lu ./step",
			allowed: "--ntasks=4 --nodes=1 --cpus-per-task=2 --label --unbuffered", command: "./step"},
		{line: "--ntasks 4 --exact --overlap -- -odd", allowed: "--ntasks=4 --exact --overlap", command: "-odd"},
		{line: "-K -o none -t 1-02:00:00 -J my.step --mem=2G true",
			allowed: "--kill-on-bad-exit --output=none --time=1-02:00:00 --job-name=my.step --mem=2G", command: "true"},
		{line: "-lun2 true", allowed: "--label --unbuffered --ntasks=2", command: "true"},

		{line: "--prolog=/tmp/x true", refused: "--prolog is not possible"},
		{line: "--epilog /tmp/x true", refused: "--epilog"},
		{line: "--task-prolog=/tmp/x true", refused: "--task-prolog"},
		{line: "--task-epilog=/tmp/x true", refused: "--task-epilog"},
		{line: "--task-e=/tmp/x true", refused: "--task-e"}, // getopt would take it for --task-epilog
		{line: "--bcast=/tmp/x ./a", refused: "--bcast"},
		{line: "--multi-prog conf", refused: "--multi-prog"},
		{line: "--no-vm true", refused: "--no-vm"},
		{line: "--vm=other true", refused: "--vm"},
		{line: "--vm-mount=/etc true", refused: "--vm-mount"},
		{line: "-o /home/me/.bashrc true", refused: "--output"},
		{line: "-o99 true", refused: "--output"},
		{line: "--error=../x true", refused: "--error"},
		{line: "-i /etc/passwd true", refused: "--input"},
		{line: "-n 4;id true", refused: "--ntasks"},
		{line: "-n", refused: "needs a value"},
		{line: "--exact=1 true", refused: "has no value"},
		{line: "--jobid=7 true", refused: "--jobid"},
		{line: "-D /tmp true", refused: "-D"},
		{line: "--chdir=/tmp true", refused: "--chdir"},
		{line: "--export=LD_PRELOAD=/x true", refused: "--export"},
		{line: "--mpi=pmix true", refused: "--mpi"},
		{line: "--container=/x true", refused: "--container"},
		{line: "--propagate true", refused: "--propagate"},
		{line: "--uid=0 true", refused: "--uid"},
		{line: "-lX true", refused: "-X"},
		{line: "--x11 true", refused: "--x11"},
		{line: "-w $(id) true", refused: "--nodelist"},
		{line: "-w ./file true", refused: "--nodelist"}, // srun reads a file where it finds a slash
	} {
		allowed, command, err := split(strings.Fields(c.line))
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %q, %v; want a refusal that names %q", c.line, allowed, err, c.refused)
			}
			continue
		}
		if err != nil || strings.Join(allowed, " ") != c.allowed || strings.Join(command, " ") != c.command {
			t.Errorf("%s: %q, %q, %v", c.line, allowed, command, err)
		}
	}
}

// FuzzOptions: whatever is asked, srun gets options of the list in one word each, with values of their form.
func FuzzOptions(f *testing.F) {
	f.Add("-n\x004\x00--\x00x")
	f.Add("-lun=2\x00x")
	f.Fuzz(func(t *testing.T, line string) {
		allowed, _, err := split(strings.Split(line, "\x00"))
		for _, word := range allowed {
			name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
			i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
			if err == nil && (!strings.HasPrefix(word, "--") || i < 0 ||
				given && !options[i].value.MatchString(value)) {
				t.Errorf("%q lets %q through", line, word)
			}
		}
	})
}

func TestPackedStep(t *testing.T) {
	want := Task{guest.Step{Argv: []string{"./step", "a b"}, Dir: "/w",
		Env: []string{"A=1", "SLURM_PROCID=7", "BIG=" + strings.Repeat("x", 300<<10)}},
		map[string]Place{"/w": {Path: "/export/w", SetID: true},
			"/data": {Path: "/data", ReadOnly: true, Devices: true}}}
	packed, err := want.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range packed {
		if len(kv) > 128<<10 {
			t.Errorf("a variable of %d bytes", len(kv))
		}
	}
	got, ok, err := Unpack([]string{Placeholder},
		append(packed, "PATH=/bin", "SLURM_PROCID=3", "LD_PRELOAD=/x", "SLURM_SPANK_X=1"))
	want.Env = []string{want.Env[0], want.Env[2], "SLURM_PROCID=3"}
	if d := cmp.Diff(want, got); d != "" || !ok || err != nil {
		t.Errorf("%v, %v, %s", ok, err, d)
	}
	if _, ok, err := Unpack([]string{"/bin/true"}, packed); ok || err != nil {
		t.Errorf("another command was taken for a step: %v, %v", ok, err)
	}
	if _, _, err := Unpack([]string{Placeholder}, []string{"GRANGE_STEP_0=nonsense!"}); err == nil {
		t.Error("nonsense was taken for a step")
	}
	if _, err := (Task{Step: guest.Step{Env: []string{"X=" + strings.Repeat("x", 4<<20)}}}).Pack(); err == nil {
		t.Error("four megabytes were packed")
	}
}

// fakeSrun shows how it was called, copies its input, and ends as it is told.
const fakeSrun = `#!/bin/sh
echo "args: $*"
echo "in $(pwd -P), called $PWD"
env | grep -v '^\(PWD\|_\|OLDPWD\|SHLVL\)=' | sed 's/^\(GRANGE_STEP_0\)=.*/\1/' | sort
echo complaint >&2
trap 'echo got TERM; exit 7' TERM
case "$*" in *--job-name=wait*) echo waiting; while :; do sleep 0.05; done;; esac
cat
exit 3
`

// connected is a session and its other end.
func connected(t *testing.T) (host, inside *guest.Session) {
	t.Helper()
	host, inside = guest.NewSession("j"), guest.NewSession("j")
	near, far := net.Pipe()
	go inside.AttachGuest(far)
	go host.AttachHost(near)
	t.Cleanup(func() { host.Close(); inside.Close(); near.Close() })
	return host, inside
}

func TestServer(t *testing.T) {
	srun := filepath.Join(t.TempDir(), "srun")
	if err := os.WriteFile(srun, []byte(fakeSrun), 0o755); err != nil {
		t.Fatal(err)
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, called, chosen := filepath.Join(top, "own"), filepath.Join(top, "called"), filepath.Join(top, "chosen")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Symlink(own, called), os.Mkdir(chosen, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(own)
	host, inside := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		NewServer(Job{ID: "42", Conf: "/etc/s.conf", Wishes: []string{"--vm=micro"}, Dir: called},
			func() (string, error) { return srun, nil }).Serve(ctx, host)
		close(done)
	}()
	stream := func(n byte) *guest.Stream { return inside.Stream(guest.StreamStep + n) }
	answers := make(chan guest.StepAnswer)
	go guest.Lines(stream(0), guest.MaxGuestLine, func(a guest.StepAnswer) { answers <- a })
	call := func(step guest.Step, input string) (string, string, guest.StepAnswer) {
		guest.WriteLine(stream(0), guest.StepRequest{Open: &step})
		go guest.WriteChunks(stream(1), strings.NewReader(input))
		var out, errs strings.Builder
		if err := guest.ReadChunks(&out, stream(2)); err != nil {
			t.Fatal(err)
		}
		if err := guest.ReadChunks(&errs, stream(3)); err != nil {
			t.Fatal(err)
		}
		return out.String(), errs.String(), <-answers
	}
	env := []string{"LD_PRELOAD=/tmp/evil.so", "SLURM_CONF=/tmp/evil.conf", "SLURM_PROLOG=/tmp/evil", "SLURM_NTASKS=2",
		"SLURM_CPUS_PER_TASK=$(id)", "PATH=/tmp"}
	for range 2 { // a slot serves one after the other
		// of the host, and none of its business
		out, errs, answer := call(guest.Step{Argv: []string{"-l", "./step", "--prolog=x"}, Env: env, Dir: chosen},
			"input\n")
		want := "args: --vm=micro --label -- /bin/false\nin " + own + ", called " + called +
			"\nGRANGE_STEP_0\nLC_ALL=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nSLURM_CONF=/etc/s.conf\n" +
			"SLURM_JOBID=42\nSLURM_JOB_ID=42\nSLURM_NTASKS=2\ninput\n"
		if d := cmp.Diff(want, out); d != "" || errs != "complaint\n" || answer != (guest.StepAnswer{Status: 3}) {
			t.Errorf("%s, %q, %+v", d, errs, answer)
		}
	}
	out, _, answer := call(guest.Step{Argv: []string{"--task-epilog=/tmp/evil", "true"}, Dir: "/"}, "")
	if out != "" || answer.Status != 1 || !strings.Contains(answer.Refused, "--task-epilog") {
		t.Errorf("%q, %+v", out, answer)
	}

	// A signal, and the end of everything.
	for _, end := range []func(){func() { guest.WriteLine(stream(0), guest.StepRequest{Signal: 15}) }, cancel} {
		guest.WriteLine(stream(0), guest.StepRequest{Open: &guest.Step{Argv: []string{"-J", "wait", "x"}, Dir: "/"}})
		go guest.WriteChunks(stream(1), strings.NewReader(""))
		r, w := io.Pipe()
		go func() { guest.ReadChunks(w, stream(2)); w.Close() }()
		seen := ""
		for buf := make([]byte, 100); !strings.Contains(seen, "waiting"); {
			n, err := r.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			seen += string(buf[:n])
		}
		end()
		rest, _ := io.ReadAll(r)
		guest.ReadChunks(io.Discard, stream(3))
		if a := <-answers; a.Status != 7 || !strings.Contains(string(rest), "got TERM") {
			t.Errorf("%+v, %q", a, rest)
		}
	}
	host.Close()
	<-done
}

// TestLongLine: a line of a guest that is longer than any call of srun ends its slot, and is not kept.
func TestLongLine(t *testing.T) {
	host, inside := connected(t)
	done := make(chan struct{})
	go func() {
		NewServer(Job{}, func() (string, error) { return "", errors.New("never asked") }).serveSlot(t.Context(), host,
			guest.StreamStep)
		close(done)
	}()
	go inside.Stream(guest.StreamStep).Write(bytes.Repeat([]byte("x"), guest.MaxStepLine+1))
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the slot waits for more")
	}
}
