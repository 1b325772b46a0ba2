package live

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/bench"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/trial"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/apply"
)

const swappiness = "proc/sys/vm/swappiness"

// tree is a host of files, and what is noted of a trial on it.
type tree struct {
	*Host
	t    *testing.T
	dir  string
	made string
}

func newTree(t *testing.T) *tree {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{swappiness: "60\n", "etc/sysctl.d/50-site.conf": "vm.swappiness = 60\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	h := &tree{t: t, dir: dir}
	h.Host = &Host{System: apply.Tree(root), Findings: []tuning.Finding{Setting("/"+swappiness, "10")},
		Note: func(made string) error { h.made = made; return nil }}
	return h
}

// again is what comes after a kill: another process, which knows what was noted.
func (h *tree) again() *tree {
	next := *h
	next.Host = &Host{System: h.System, Findings: h.Findings,
		Note: func(made string) error { next.made = made; return nil }}
	return &next
}

func (h *tree) want(value string) {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, swappiness))
	if err != nil || strings.TrimSpace(string(text)) != value {
		h.t.Errorf("swappiness is %q, %v; want %s", text, err, value)
	}
}

// files are those of /etc.
func (h *tree) files() (all string) {
	h.t.Helper()
	err := filepath.WalkDir(filepath.Join(h.dir, "etc"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		all += name + "\n" + string(text)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// TestSwitch: a change is made once, taken back once, and noted before it is made.
func TestSwitch(t *testing.T) {
	h := newTree(t)
	before := h.files()
	for range 2 {
		for _, on := range []bool{true, true, false, false} {
			if err := h.Switch(t.Context(), on); err != nil {
				t.Fatal(err)
			}
			if on != (h.made != "") {
				t.Errorf("on %v: noted %q", on, h.made)
			}
			h.want(map[bool]string{true: "10", false: "60"}[on])
		}
	}
	if h.files() != before {
		t.Errorf("files are not as before:\n%s", h.files())
	}
	if runs, err := apply.History(h.System.Root()); err != nil || len(runs) != 0 {
		t.Errorf("%d applies are left in the history, %v", len(runs), err)
	}
}

// TestNoteFails: what could not be noted is not made.
func TestNoteFails(t *testing.T) {
	h := newTree(t)
	full := errors.New("disk full")
	h.Note = func(string) error { return full }
	if err := h.Switch(t.Context(), true); !errors.Is(err, full) {
		t.Error(err)
	}
	h.want("60")
}

// TestApplyFails: an apply that took itself back is not noted, so that the next trial leaves alone what others make.
func TestApplyFails(t *testing.T) {
	h := newTree(t)
	ctx, cancel := context.WithCancel(t.Context())
	noted := ""
	note := h.Note
	h.Note = func(made string) error {
		if made != "" {
			noted = made
			cancel()
		}
		return note(made)
	}
	if err := h.Switch(ctx, true); !farm.IsCode(err, apply.CodeApplyFailed) || noted == "" || h.made != "" {
		t.Errorf("%v, noted %q and then %q", err, noted, h.made)
	}
	h.want("60")
}

// TestRecover: whenever a trial is killed, the next one takes back what it made, and nothing else.
func TestRecover(t *testing.T) {
	for name, killed := range map[string]func(*tree){
		"before the apply": func(h *tree) { h.made = "20260101T000000Z" },
		"in a round":       func(*tree) {},
		"before it was noted that it is taken back": func(h *tree) {
			was := h.made
			if err := h.Switch(context.Background(), false); err != nil {
				t.Fatal(err)
			}
			h.made = was
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTree(t)
			before := h.files()
			if name != "before the apply" {
				if err := h.Switch(t.Context(), true); err != nil {
					t.Fatal(err)
				}
			}
			killed(h)
			next := h.again()
			if err := next.Recover(t.Context(), next.made); err != nil {
				t.Fatal(err)
			}
			if next.want("60"); next.made != "" || next.files() != before {
				t.Errorf("noted %q\n%s", next.made, next.files())
			}
		})
	}
}

// TestRecoverNothing: an apply of somebody else's, before or without a trial, stays.
func TestRecoverNothing(t *testing.T) {
	h := newTree(t)
	if err := h.Switch(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{"", "20260101T000000Z"} {
		next := h.again()
		if err := next.Recover(t.Context(), made); err != nil {
			t.Error(err)
		}
		next.want("10")
	}
}

// team does as much as its size says.
type team struct {
	size bench.Size
	open *int
}

func (m team) Host(context.Context, string, time.Duration) (float64, error) { return 1, nil }

func (m team) VMs(context.Context, string, time.Duration) (float64, error) {
	return float64(m.size.VMs * m.size.CPUs), nil
}

func (m team) Close() error { *m.open--; return nil }

// TestMeasure: members of one size at a time, and none is left.
func TestMeasure(t *testing.T) {
	open, started := 0, 0
	h := newTree(t)
	h.Field = func(_ context.Context, s bench.Size) (bench.Team, error) {
		open, started = open+1, started+1
		if open > 1 {
			t.Error("two teams at a time")
		}
		return team{s, &open}, nil
	}
	two, three := bench.Size{VMs: 1, CPUs: 2}, bench.Size{VMs: 3, CPUs: 1}
	points := []trial.Point{{Size: two, Workload: "a"}, {Size: two, Workload: "b"}, {Size: three, Workload: "a"}}
	rates, err := h.Measure(t.Context(), points)
	if err != nil || len(rates) != 3 || rates[0] != 2 || rates[2] != 3 || started != 2 {
		t.Errorf("%v, %v, %d teams", rates, err, started)
	}
	h.OnHost = true
	if rates, err := h.Measure(t.Context(), points[:1]); err != nil || rates[0] != 1 {
		t.Errorf("%v, %v", rates, err)
	}
	if err := h.Close(); err != nil || open != 0 {
		t.Error(err, open)
	}
}

// TestKept: a trial is read as it was written, and two are kept apart.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadKept(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	k := trial.Kept{Version: 1, Change: "x", Made: "20260101T000000Z"}
	if err := Keep(dir, k); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadKept(dir); err != nil || got.Change != k.Change || got.Made != k.Made {
		t.Errorf("%+v, %v", got, err)
	}
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); !farm.IsCode(err, trial.CodeTrial) {
		t.Error(err)
	}
	unlock()
	if unlock, err = Lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
}
