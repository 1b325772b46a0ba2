package apply

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

var update = flag.Bool("update", false, "write the golden files anew")

// wantedFile is the golden case's list of findings.
const wantedFile = "FINDINGS"

// planFile is what the plan must read.
const planFile = "PLAN"

// treeAfter begins the names of files as they must be after apply.
const treeAfter = "AFTER/"

// TestPlans makes the plan of each file of testdata/plans and compares it with the text in there, applies it to the
// tree, compares the files that it names below AFTER, and undoes it. To add a case, write the file with a tree and
// FINDINGS, and run with -update.
func TestPlans(t *testing.T) {
	cases, err := filepath.Glob("testdata/plans/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { testPlan(t, file) })
	}
}

func testPlan(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := readArchive(t, string(text))
	var findings []tuning.Finding
	decoder := json.NewDecoder(strings.NewReader(files[wantedFile]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&findings); err != nil {
		t.Fatal(err)
	}
	want := files[planFile]
	after := map[string]string{}
	for name, text := range files {
		if below, ok := strings.CutPrefix(name, treeAfter); ok {
			after[below] = text
			delete(files, name)
		}
	}
	delete(files, wantedFile)
	delete(files, planFile)
	root := extract(t, files)
	before := look(t, root)
	system := Tree(root)
	got := ""
	plan, err := NewPlan(t.Context(), system, findings)
	if err == nil {
		got = plan.Text(nil, 0)
		err = plan.Ready(system)
	}
	if err != nil {
		got += "error: " + describeError(err) + "\n"
	}
	if *update {
		rewrite(t, file, string(text), got)
	} else if d := cmp.Diff(want, got); d != "" {
		t.Errorf("plan (-want +got):\n%s", d)
	}
	if err != nil {
		return
	}
	if _, err := Do(t.Context(), system, plan, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range after {
		now, err := root.ReadFile(name)
		if err != nil && text != "-\n" {
			t.Error(err)
		}
		if d := cmp.Diff(text, string(now)); err == nil && d != "" {
			t.Errorf("%s after apply (-want +got):\n%s", name, d)
		}
	}
	again, err := NewPlan(t.Context(), system, findings)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Steps) != 0 {
		t.Errorf("a second plan is not empty:\n%s", again.Text(nil, 0))
	}
	if _, err := Undo(t.Context(), system, "", false, Options{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, look(t, root)); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
}

func describeError(err error) string {
	own := new(farm.Error)
	if !errors.As(err, &own) {
		return err.Error()
	}
	return string(own.Code) + ": " + err.Error()
}

func rewrite(t *testing.T, file, text, plan string) {
	head, rest, found := strings.Cut(text, "-- "+planFile+" --\n")
	tail := ""
	if found {
		if i := strings.Index("\n"+rest, "\n-- "); i >= 0 {
			tail = rest[i:]
		}
	}
	if err := os.WriteFile(file, []byte(head+"-- "+planFile+" --\n"+plan+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
