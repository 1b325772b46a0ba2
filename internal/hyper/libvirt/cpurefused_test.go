package libvirt

import (
	"testing"

	"github.com/grange-project/grange/internal/hyper"
)

// TestCPURefused has the words of libvirt 9 and 11, for models that a host lacks, or nobody knows.
func TestCPURefused(t *testing.T) {
	const lacks = "this host's CPU lacks what the VM's CPU model has: "
	for message, want := range map[string]string{
		"the CPU is incompatible with host CPU: Host CPU does not provide required features: pcid, avx512f": lacks +
			"pcid, avx512f",
		"unsupported configuration: guest and host CPU are not compatible: Host CPU does not provide required " +
			"features: erms": lacks + "erms",
		"operation failed: guest CPU doesn't match specification: missing features: avx512f,avx512dq": lacks +
			"avx512f, avx512dq",
		"internal error: Unknown CPU model Nonsense": "libvirt has " +
			"no such CPU model for this host: internal error: Unknown CPU model Nonsense",
		"internal error: process exited while connecting to monitor": "",
	} {
		err := cpuRefused(message)
		switch {
		case want == "" && err != nil, want != "" && err == nil:
			t.Errorf("%q: %v", message, err)
		case err != nil && (err.Message != want || err.Code != hyper.CodeCPUModel || err.Hint == ""):
			t.Errorf("%q: %+v, want %q", message, err, want)
		}
	}
}
