package apply

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/grange-project/grange/internal/tuning"
)

func TestPlanIsFolded(t *testing.T) {
	long := strings.Repeat("word ", 60)
	p := Plan{Wants: []Want{{Rule: "rule", Where: "host", Wanted: long, Got: long, Severity: tuning.Advice,
		Manual: []string{long}}}}
	for width, most := range map[int]int{0: 100, 20: 40, 60: 60, 500: 120} {
		text := p.Text(nil, width)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > most {
				t.Errorf("width %d: %d columns: %s", width, n, line)
			}
		}
		if got := strings.Count(text, "word"); got != 180 {
			t.Errorf("width %d: %d words of 180 are left", width, got)
		}
	}
}

func TestBackSaysTheDirection(t *testing.T) {
	file := &File{Data: []byte("x\n")}
	for want, s := range map[string]Step{
		"/sys/a: madvise → always": {Kind: StepValue, Path: "sys/a", Old: State{Text: "always"},
			New: State{Text: "madvise"}},
		"/" + ksmRun + ": 0 → 1": {Kind: StepUnmerge, Path: ksmRun, Old: State{Text: "1"}, New: State{Text: "0"}},
		"remove /etc/a":          {Kind: StepFile, Path: "etc/a", New: State{File: file}},
	} {
		if got := s.Back().String(); got != want {
			t.Errorf("%s is taken back by %q, want %q", s, got, want)
		}
	}
}

// A recording may have libvirt's word for a VM and not its process.
func TestVMsOfARecording(t *testing.T) {
	root := extract(t, map[string]string{"proc/1/comm": "systemd\n",
		runDir + "/a.xml": "<domstatus state='running' reason='booted' pid='7'><domain/></domstatus>\n",
		runDir + "/b.xml": "<domstatus state='shutoff'><domain/></domstatus>\n"})
	plan := Plan{Steps: []Step{{Kind: StepModule, Unit: "kvm_intel", NoVMs: true}}}
	err := plan.Ready(Tree(root))
	wantCode(t, err, "vms-running")
	if !strings.Contains(err.Error(), "1 VM: a") {
		t.Errorf("%v", err)
	}
}
