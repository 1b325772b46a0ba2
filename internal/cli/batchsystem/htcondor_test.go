package batchsystem

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/batch/htcondor"
	"github.com/grange-project/grange/internal/cli/app"
)

func TestCondorExec(t *testing.T) {
	got := condorExec("/run/x.sock", htcondor.Wish{Image: "sl9", Shape: "large", Mounts: []string{"/data:ro", "/sw"}},
		[]string{"/bin/job", "--image", "own"})
	want := []string{"exec", "--batch", "htcondor", "--socket", "/run/x.sock", "--image", "sl9", "--shape", "large",
		"--bind", "/data:ro", "--bind", "/sw", "--", "/bin/job", "--image", "own"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// runCondor runs a command for HTCondor with the given input.
func runCondor(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	if input != "" {
		path := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(path, []byte(input), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		old := os.Stdin
		os.Stdin = file
		defer func() { os.Stdin = old }()
	}
	return run(t, append([]string{"htcondor"}, args...)...)
}

// run runs a command of batch systems, and gives what it prints and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	a := &app.App{Out: &out, Err: &out}
	root := a.Tree(app.Group{Title: "Batch systems", Commands: Commands(a)})
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCondorWrapper starts nothing where it is not HTCondor that started it.
func TestCondorWrapper(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	t.Setenv("_CONDOR_JOB_AD", filepath.Join(t.TempDir(), "none"))
	t.Setenv("_CONDOR_SLOT", "slot1")
	out, err := runCondor(t, "", "wrapper", "--metal", "default", "--", "/bin/touch", marker)
	if exit, ok := err.(app.ExitError); !ok || exit.Status != batch.ExitNever || !strings.Contains(out, "[no-job-ad]") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := runCondor(t, "", "wrapper", "--metal", "sometimes", "--", "/bin/touch", marker); err == nil {
		t.Error("--metal sometimes")
	}
	if _, err := runCondor(t, "", "wrapper"); err == nil {
		t.Error("no command")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the job ran on the host")
	}
}

// TestCondorHooksWithoutAgent: that is an answer for HTCondor, and no error of the hooks.
func TestCondorHooksWithoutAgent(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	out, err := runCondor(t, "", "cron", "--socket", none)
	if err != nil || !strings.Contains(out, "GrangeReady = false\n") ||
		!strings.Contains(out, "GrangeProblem = \"no agent answers") || !strings.HasSuffix(out, "\n-\n") {
		t.Errorf("%v: %s", err, out)
	}
	for ad, want := range map[string]string{
		"NumShadowStarts = 1\n":                        "HookStatusCode = 300\n",
		"NumShadowStarts = 9\n":                        "HookStatusCode = 197\n",
		"NumShadowStarts = 1\nWantVM = \"maybe\"\n":    "HookStatusCode = 197\n",
		"NumShadowStarts = 1\nWantVM = False\nA = 1\n": "",
	} {
		out, err := runCondor(t, ad, "prepare", "--socket", none)
		if err != nil || !strings.HasPrefix(out, want) || want == "" && out != "" {
			t.Errorf("%q: %v: %q", ad, err, out)
		}
	}
}

func TestCondorInstall(t *testing.T) {
	root := t.TempDir()
	out, err := runCondor(t, "", "install", "--execute", "--access", "--root", root, "--metal", "never", "--socket",
		"/run/g.sock")
	if err != nil || !strings.Contains(out, "next: condor_reconfig") {
		t.Fatalf("%v: %s", err, out)
	}
	for path, want := range map[string]string{
		"/etc/condor/config.d/50-grange-execute.conf": "USER_JOB_WRAPPER = /usr/libexec/grange/condor-wrapper\n",
		"/etc/condor/config.d/50-grange-access.conf":  "JOB_TRANSFORM_NAMES = $(JOB_TRANSFORM_NAMES) GRANGE\n",
		"/usr/libexec/grange/condor-wrapper":          "\nhtcondor wrapper --socket /run/g.sock --metal never --\n",
		"/usr/libexec/grange/condor-cron":             "\nhtcondor cron --socket /run/g.sock --metal never\n",
	} {
		text, err := os.ReadFile(root + path)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v: %s", path, err, text)
		}
		info, err := os.Stat(root + path)
		if err != nil || (info.Mode().Perm() == 0o755) != strings.Contains(path, "libexec") {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if again, err := runCondor(t, "", "install", "--execute", "--access", "--root", root); err != nil {
		t.Errorf("a second time: %v: %s", err, again)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(root + "/usr/libexec/grange/condor-wrapper"); err != nil ||
		!strings.HasPrefix(string(text), "#!"+self+" hook\n") {
		t.Errorf("not this program: %v: %s", err, text)
	}
	left, _ := filepath.Glob(root + "/*/*/*/.grange-*")
	if len(left) > 0 {
		t.Error(left)
	}
	for _, bad := range [][]string{{"install"}, {"install", "--execute", "--hooks", "here"},
		{"install", "--execute", "--metal", "x"}, {"install", "--execute", "--socket", "/a b"}} {
		if out, err := runCondor(t, "", bad...); err == nil {
			t.Errorf("%q: %s", bad, out)
		}
	}
}

func TestCondorCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(path, []byte("DAEMON_LIST = MASTER SCHEDD STARTD\nSTART = TRUE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := runCondor(t, "", "check", "--from", path)
	if exit, ok := err.(app.ExitError); !ok || exit.Status != app.ExitFailed ||
		!strings.Contains(out, "USER_JOB_WRAPPER is not set\n  why: every job runs on the host itself\n  do:  grange ") ||
		!strings.Contains(out, "no job transform") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.WriteFile(path, []byte("DAEMON_LIST = MASTER COLLECTOR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := runCondor(t, "", "check", "--from", path); err == nil || strings.Contains(out, "ready") {
		t.Errorf("a central manager: %v: %s", err, out)
	}
}
