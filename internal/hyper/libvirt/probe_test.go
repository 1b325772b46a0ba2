package libvirt_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/grange-project/grange/internal/hyper/libvirt"
)

func TestProbe(t *testing.T) {
	kernel, initrd := testKernel(t)
	c := libvirt.ProbeConfig{Kernel: kernel, Initrd: initrd, Timeout: 3 * time.Second, CacheFile: filepath.Join(t.TempDir(), "kvm.json")}
	first := libvirt.Probe(t.Context(), c)
	t.Logf("%+v", first)
	if (first.Accelerator == libvirt.KVM) != (first.Why == "") {
		t.Errorf("verdict %+v: a reason for emulation, and only for it", first)
	}
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return
	}
	began := time.Now()
	if again := libvirt.Probe(t.Context(), c); again != first {
		t.Errorf("asked again: %+v, before: %+v", again, first)
	}
	if took := time.Since(began); took > c.Timeout/2 {
		t.Errorf("the cached verdict took %v", took)
	}
}

func TestProbeWithoutKernel(t *testing.T) {
	v := libvirt.Probe(t.Context(), libvirt.ProbeConfig{Kernel: "/nowhere", Initrd: "/nowhere"})
	if v.Accelerator != libvirt.TCG || v.Why == "" {
		t.Errorf("verdict %+v, want emulation and why", v)
	}
}
