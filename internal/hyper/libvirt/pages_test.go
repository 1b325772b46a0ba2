package libvirt_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestHugePages starts a machine in huge pages, as QEMU's unprivileged user.
func TestHugePages(t *testing.T) {
	const free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
	count := func() int {
		b, err := os.ReadFile(free)
		if err != nil {
			t.Skipf("skip huge pages: %v", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p := startLibvirtd(t)
	m := p.machine(t, sleeps)
	m.Plan.Cells[0].PageSize = 2 * farm.MiB
	if count() < 32 {
		t.Skip("skip huge pages: this host has no 32 free ones of 2 MiB; write 64 into /proc/sys/vm/nr_hugepages")
	}
	h := p.open(t)
	if _, err := h.Start(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := h.Resume(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	o, err := h.Observe(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Nodes) != 1 || o.Nodes[0] != 0 {
		t.Errorf("memory is bound to nodes %v, want 0", o.Nodes)
	}
	if err := h.Stop(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
}
