package load

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRun: all phases are measured, and nothing is left; Read reads what Run prints.
func TestRun(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 3<<20 + 5, Files: 20, Time: time.Minute}
	again, err := parse(o.Args())
	if err != nil || again != o {
		t.Fatalf("%+v, %v", again, err)
	}
	var out strings.Builder
	if err := Run(o, &out); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	var begun, ended []string
	amounts := map[string]int64{}
	err = Read(strings.NewReader("a word of the kernel's\n"+out.String()),
		func(name string) { begun = append(begun, name) },
		func(p Phase) { ended, amounts[p.Name] = append(ended, p.Name), p.Amount })
	if err != nil || !slices.Equal(begun, Phases) || !slices.Equal(ended, Phases) {
		t.Errorf("%v, %v, %v", begun, ended, err)
	}
	for name, want := range map[string]int64{"write": o.Size, "read": o.Size, "create": 20, "stat": 20, "delete": 20} {
		if amounts[name] != want {
			t.Errorf("%s: %d, want %d", name, amounts[name], want)
		}
	}
}

// TestTime: a phase ends with its time, and never before it has done anything; all that was made is deleted.
func TestTime(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 1 << 40, Files: 1 << 30, Time: time.Nanosecond}
	var out strings.Builder
	if err := Run(o, &out); err != nil {
		t.Fatal(err)
	}
	err := Read(strings.NewReader(out.String()), func(string) {}, func(p Phase) {
		if want := map[string]int64{"write": block, "read": block}[p.Name]; p.Amount != max(want, 1) {
			t.Errorf("%+v", p)
		}
	})
	if left, e := os.ReadDir(o.Dir); err != nil || e != nil || len(left) > 0 {
		t.Error(left, err, e)
	}
}

func TestReadCutShort(t *testing.T) {
	for _, text := range []string{"", "begin write\n", "begin write\nend write 5\n", "begin write\nend write 0 5 5\n"} {
		err := Read(strings.NewReader(text), func(string) {}, func(p Phase) { t.Errorf("%q: %+v", text, p) })
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
