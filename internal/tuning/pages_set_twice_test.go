package tuning

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestPagesSetTwice names all places that set huge pages, the one that wins, and a number that none of them sets.
func TestPagesSetTwice(t *testing.T) {
	const line = "default_hugepagesz=1G hugepagesz=1G hugepages=8"
	sysctl := func(values ...string) (out []farm.PagesSetting) {
		for i, v := range values {
			out = append(out, farm.PagesSetting{File: "etc/sysctl.d/" + string(rune('a'+i)) + ".conf", Value: v})
		}
		return out
	}
	for name, c := range map[string]struct {
		line  string
		set   []farm.PagesSetting
		tuned []farm.TunedSetting
		now   int
		want  []string // none: quiet
	}{
		"one place":          {line: line, now: 8},
		"the same number":    {line: line, set: sysctl("8"), now: 8},
		"sysctl wins":        {line: line, set: sysctl("4"), now: 4, want: []string{"/etc/default/grub sets 8", "a.conf sets 4", "a.conf is applied last"}},
		"two of sysctl":      {set: sysctl("4", "6"), now: 6, want: []string{"a.conf sets 4", "b.conf sets 6", "b.conf is applied last"}},
		"tuned wins":         {line: line, set: sysctl("4"), tuned: tunedSysctl("6", false), now: 6, want: []string{"a.conf sets 4", "tuned.conf sets 6", "tuned.conf is applied last"}},
		"tuned is overruled": {line: line, set: sysctl("4"), tuned: tunedSysctl("6", true), now: 4, want: []string{"tuned.conf sets 6", "a.conf sets 4", "a.conf is applied last"}},
		"none of them":       {line: line, set: sysctl("4"), now: 5, want: []string{"now there are 5, which none of them sets"}},
		"tuned adds more":    {line: line, tuned: tunedBoot("hugepagesz=2M hugepages=512"), now: 8, want: []string{"8 pages of 1 GiB and 512 pages of 2 MiB"}},
		"tuned adds words":   {line: line, tuned: tunedBoot("isolcpus=2"), now: 8},
	} {
		h := farm.HostFacts{Kernel: farm.Kernel{BootFile: "etc/default/grub", NextBoot: c.line, Command: c.line},
			PagesSet: c.set, Tuned: c.tuned, Services: map[string]farm.Service{"tuned": {Running: true}},
			Pages:  []farm.PagePool{{Size: farm.GiB, Total: c.now}, {Size: 2 * farm.MiB}},
			Memory: farm.MemoryFacts{DefaultPage: farm.GiB}}
		var got []string
		for _, f := range checkBootLineConflict(h, Profile{}) {
			got = append(got, f.Where+": "+f.Got)
		}
		text := strings.Join(got, "\n")
		if len(c.want) == 0 && text != "" {
			t.Errorf("%s: found %s", name, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q, want %q", name, text, want)
			}
		}
	}
}

func tunedBoot(words string) []farm.TunedSetting {
	return []farm.TunedSetting{{Path: "proc/cmdline", Value: words, File: "etc/tuned/site/tuned.conf",
		Unit: "bootloader", Option: "cmdline"}}
}

func tunedSysctl(pages string, overruled bool) []farm.TunedSetting {
	return []farm.TunedSetting{{Path: "proc/sys/vm/nr_hugepages", Value: pages, File: "etc/tuned/site/tuned.conf",
		Unit: "sysctl", Option: "vm.nr_hugepages", Overruled: overruled}}
}
