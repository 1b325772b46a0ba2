package tune

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
)

func TestTuneEmptyTreeIsNotThisHost(t *testing.T) {
	for _, command := range []string{"plan", "apply", "undo", "history", "drift"} {
		if _, err := tune(t, command, "--root", ""); app.CodeOf(err) != "usage" || app.StatusOf(err) != app.ExitUsage {
			t.Errorf("%s --root '': %v", command, err)
		}
	}
	if _, err := tune(t, "plan", "--from", ""); app.CodeOf(err) != "usage" {
		t.Errorf("plan --from '': %v", err)
	}
	if _, err := tune(t, "plan", "--from", "a", "--root", "b"); app.CodeOf(err) != "usage" {
		t.Errorf("plan --from a --root b: %v", err)
	}
}

// hintOf is what an error says to try.
func hintOf(err error) string {
	_, hint := app.Explain(err)
	return hint
}

func TestTuneHintsNameTheTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's node 17")
	if err := os.Rename(recorded(t), dir); err != nil {
		t.Fatal(err)
	}
	quoted := "--root '" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	text, err := tune(t, "apply", "--root", dir, "--rule", "ept-off", "--yes")
	if err != nil || !strings.Contains(text, "`grange tune undo "+quoted+"` takes it back") {
		t.Errorf("apply: %v\n%s", err, text)
	}
	if _, err := tune(t, "undo", "--root", dir, "20000101T000000Z"); !strings.Contains(hintOf(err),
		"`grange tune history "+quoted+"`") {
		t.Errorf("undo of what is not there: %q", hintOf(err))
	}
	text, err = tune(t, "plan", "--root", recorded(t), "--rule", "ept-off")
	if err != nil || !strings.Contains(text, "`grange tune apply --root /") {
		t.Errorf("plan: %v\n%s", err, text)
	}
}

// A plan for a directory reads the directory: no copy, and no file that it does not need.
func TestTunePlanOfADirectoryCopiesNothing(t *testing.T) {
	dir := recorded(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "etc", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(temporary, "none"))
	text, err := tune(t, "plan", "--from", dir, "--rule", "ept-off")
	if err != nil || !strings.Contains(text, "load anew with ept: N → 1") {
		t.Errorf("%v\n%s", err, text)
	}
	t.Setenv("TMPDIR", temporary)
	nested := filepath.Join(t.TempDir(), "above")
	if err := os.Mkdir(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, filepath.Join(nested, "host")); err != nil {
		t.Fatal(err)
	}
	below, err := tune(t, "plan", "--from", nested, "--rule", "ept-off")
	if err != nil || below != text {
		t.Errorf("a host below the directory: %v\n%s", err, below)
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// full is a place that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestTuneLostOutput(t *testing.T) {
	dir := recorded(t)
	run := func(args ...string) error {
		a := &app.App{Out: full{}, Err: os.Stderr}
		root := a.Tree(app.Group{Title: "Hosts", Commands: Commands(a)})
		root.SetArgs(append([]string{"tune"}, args...))
		return root.ExecuteContext(t.Context())
	}
	for _, args := range [][]string{{"plan", "--root", dir}, {"plan", "--from", before2015},
		{"apply", "--root", dir, "--yes"}, {"history", "--root", dir}, {"drift", "--root", dir}} {
		if err := run(args...); !errors.Is(err, syscall.ENOSPC) || app.CodeOf(err) != "lost-output" {
			t.Errorf("%v: %v", args, err)
		}
	}
	if text, err := tune(t, "history", "--root", dir); err != nil || text != "nothing was applied here\n" {
		t.Errorf("an apply whose plan nobody saw: %v %s", err, text)
	}
}

func TestTreeErrorsHaveCodes(t *testing.T) {
	for cause, want := range map[syscall.Errno]farm.Code{syscall.ENOSPC: farm.CodeDiskFull,
		syscall.EACCES: farm.CodeNeedsRoot, syscall.EROFS: farm.CodeNeedsRoot} {
		err := inTree("/tmp/node17", &os.PathError{Op: "open", Path: "lock", Err: cause})
		if app.CodeOf(err) != string(want) || hintOf(err) == "" || !strings.Contains(err.Error(), "/tmp/node17") {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

func TestTuneBadJournalNamesItsFile(t *testing.T) {
	dir := recorded(t)
	const id = "20260101T000000Z"
	file := filepath.Join(dir, "var/lib/grange/tuning", id, "journal")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := tune(t, "history", "--root", dir)
	if app.CodeOf(err) != "bad-journal" || !strings.HasPrefix(err.Error(), file+": line 1") || hintOf(err) == "" {
		t.Errorf("%v; try: %s", err, hintOf(err))
	}
}

func TestTuneApplySaysByHandOnce(t *testing.T) {
	dir := recorded(t)
	if _, err := tune(t, "apply", "--root", dir, "--yes"); err != nil {
		t.Fatal(err)
	}
	text, err := tune(t, "apply", "--root", dir, "--yes")
	if err != nil || !strings.Contains(text, "nothing to change") || !strings.Contains(text, "by hand") {
		t.Fatalf("%v\n%s", err, text)
	}
	if strings.Contains(text, "by hand:") || strings.Contains(text, "still finds") {
		t.Errorf("said twice:\n%s", text)
	}
}
