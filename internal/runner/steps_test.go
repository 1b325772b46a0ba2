package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/guest"
	"github.com/grange-project/grange/internal/runner/runnertest"
	"github.com/grange-project/grange/internal/steps"
)

// TestStepSeesWhatItsScriptSees: a VM that sees a directory can put links in the place of those below it, and names
// directories as it likes. A step's task gives it nothing by that.
func TestStepSeesWhatItsScriptSees(t *testing.T) {
	type place = steps.Place
	for name, c := range map[string]struct {
		places map[string]place               // by name below the top, as the paths of them
		change func(t *testing.T, top string) // what a VM has done meanwhile
		want   []api.Bind
		says   string
	}{
		"honest": {places: map[string]place{"work": {Path: "work"},
			"data": {Path: "data", ReadOnly: true}, "link": {Path: "data"}},
			want: []api.Bind{{Target: "data", ReadOnly: true}, {Target: "link"}, {Target: "work"}}},
		"a link for the directory": {places: map[string]place{"work": {Path: "work"}, "data": {Path: "data"},
			"link": {Path: "data"}}, change: swap("work"), want: []api.Bind{{Target: "data"}, {Target: "link"}},
			says: "/work"},
		"a link for a bind": {places: map[string]place{"work": {Path: "work"}, "data": {Path: "data"},
			"link": {Path: "data"}}, change: swap("data"), want: []api.Bind{{Target: "work"}}, says: "/link"},
		"what the script has not": {places: map[string]place{"data": {Path: "data"}},
			want: []api.Bind{{Target: "data"}}, says: "/work"},
		"a wrapper of another version": {says: "/work"},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{"work", "data", "secret"} {
				if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("data", filepath.Join(top, "link")); err != nil {
				t.Fatal(err)
			}
			task := steps.Task{Step: guest.Step{Argv: []string{"./step"}, Dir: filepath.Join(top, "secret")},
				Places: map[string]place{}}
			for name, p := range c.places {
				p.Path = filepath.Join(top, p.Path)
				task.Places[filepath.Join(top, name)] = p
			}
			if c.change != nil {
				c.change(t, top)
			}
			env, err := task.Pack()
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range env {
				name, value, _ := strings.Cut(kv, "=")
				t.Setenv(name, value)
			}
			t.Chdir(filepath.Join(top, "work")) // as slurmstepd goes there
			f := runnertest.Start(t, api.Grant{Batch: "slurm", Requeues: 3}, nil)
			w := wrapper{system: farm.Slurm,
				binds: []string{filepath.Join(top, "data"), filepath.Join(top, "link")}}
			_, errs := w.run(t, f.Socket, steps.Placeholder)
			if f.Request == nil {
				t.Fatal("never asked: ", errs)
			}
			got := f.Request.Binds
			for i := range got {
				got[i].FD = 0 // some number
				got[i].Target = strings.TrimPrefix(got[i].Target, top+"/")
			}
			if d := cmp.Diff(c.want, got); d != "" || f.Request.Dir != task.Dir || f.Request.Argv[0] != "./step" ||
				!strings.Contains(errs, top+c.says) && c.says != "" {
				t.Errorf("%+v, %s\n%s", f.Request, errs, d)
			}
		})
	}
}

// swap puts a link to somewhere else in a directory's place.
func swap(name string) func(*testing.T, string) {
	return func(t *testing.T, top string) {
		path := filepath.Join(top, name)
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("secret", path); err != nil {
			t.Fatal(err)
		}
	}
}
