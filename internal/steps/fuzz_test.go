package steps

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/guest"
)

// FuzzUnpack reads what a step's task finds in its environment, of which a VM decided parts.
func FuzzUnpack(f *testing.F) {
	whole := Task{guest.Step{Argv: []string{"a"}, Dir: "/w", Env: []string{"SLURM_PROCID=9", "A=1"}},
		map[string]Place{"/w": {Path: "/export", ReadOnly: true}}}
	packed, err := whole.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(strings.Join(packed, "\n"), "SLURM_PROCID=1\nSLURM_SPANK_X=1\nPATH=/bin")
	f.Add(variable+"0="+base64.StdEncoding.EncodeToString([]byte(`{"argv":["x"],"dir":"relative"}`)), "")
	f.Add(variable+"7=AAAA\n"+variable+"=\n"+variable+"0=!!", "=\n\n")
	f.Fuzz(func(t *testing.T, packed, own string) {
		env := append(strings.Split(packed, "\n"), strings.Split(own, "\n")...)
		task, ok, err := Unpack([]string{Placeholder}, env)
		if !ok {
			return
		}
		if err != nil || len(task.Argv) == 0 || !filepath.IsAbs(task.Dir) {
			t.Errorf("%+v, %v", task, err)
		}
	})
}
