package hostfacts_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/hostfacts"
)

// TestPageSettings reads files of sysctl.d in the order of their names, those of /etc in place of packaged ones, and
// records nothing else of them.
func TestPageSettings(t *testing.T) {
	host := wired()
	for name, text := range map[string]string{
		"etc/sysctl.d/50-vm.conf":        "# pages\nvm.nr_hugepages = 7\nnet.secret_number = 4711\n",
		"usr/lib/sysctl.d/50-vm.conf":    "vm.nr_hugepages = 1\n",
		"usr/lib/sysctl.d/10-first.conf": "-vm/nr_hugepages=2\n",
		"etc/sysctl.d/60-none.txt":       "vm.nr_hugepages = 3\n",
		"etc/sysctl.conf":                "vm.nr_hugepages=9\n",
	} {
		host[name] = &fstest.MapFile{Data: []byte(text)}
	}
	h, err := hostfacts.Read(host)
	if err != nil {
		t.Fatal(err)
	}
	want := []farm.PagesSetting{{File: "usr/lib/sysctl.d/10-first.conf", Value: "2"},
		{File: "etc/sysctl.d/50-vm.conf", Value: "7"}, {File: "etc/sysctl.conf", Value: "9"}}
	if d := cmp.Diff(want, h.PagesSet); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	var b bytes.Buffer
	if _, err := hostfacts.Record(host, false, false, &b, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "vm.nr_hugepages = 7") || strings.Contains(b.String(), "4711") {
		t.Error("the recording does not have the settings of pages alone")
	}
}
