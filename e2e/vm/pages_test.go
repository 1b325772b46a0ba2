package vm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grange-project/grange/e2e/lab"
	"github.com/grange-project/grange/internal/farm"
)

const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

// fillPool gives the host a pool of huge pages for this test, which the agent has seen.
func fillPool(t *testing.T, pages int) {
	t.Helper()
	release, err := lab.HoldMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	before, err := os.ReadFile(pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pool, []byte(fmt.Sprint(pages)), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(pool, before, 0o644) })
	awaitPages(t, pages)
}

// TestHugePages puts a VM's memory into the host's pool of huge pages, and refuses when the pool is too small.
func TestHugePages(t *testing.T) {
	fillPool(t, 160) // 320M
	j := start(t, host, "--page-size", "2M", "--memory", "256M", "--", "sh", "-c", "echo up; sleep 1000")
	for _, pid := range host.QEMUs() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil || !regexp.MustCompile(`_Hugetlb: +262144 kB`).Match(text) {
			t.Errorf("the VM's memory is not in huge pages: %v\n%s", err, text)
		}
	}
	if r := grange(t, "--no-wait", "--page-size", "2M", "--memory", "256M", "--", "true"); r.code != 199 ||
		!strings.Contains(r.errors, "pages") {
		t.Errorf("status %d, want 199 and a word about pages: %s", r.code, r.errors)
	}
	if r := grange(t, "--page-size", "2M", "--memory", "2G", "--", "true"); r.code != 2 {
		t.Errorf("status %d, want 2, for the pool can never hold it: %s", r.code, r.errors)
	}
	if r := grange(t, "--page-size", "2M", "--memory", "65M", "--", "true"); r.code != 2 {
		t.Errorf("status %d, want 2, for 65M are no whole pages: %s", r.code, r.errors)
	}
	j.Process.Kill()
	<-j.done
}

// awaitPages waits until the agent has seen the pool.
func awaitPages(t *testing.T, pages int) {
	for c := ctx(t); ; time.Sleep(50 * time.Millisecond) {
		h, err := host.Client.Host(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range h.Nodes[0].Pages {
			if p.Size == uint64(2*farm.MiB) && p.Total == pages {
				return
			}
		}
	}
}
