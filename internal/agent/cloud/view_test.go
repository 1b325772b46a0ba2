package cloud

import "testing"

// TestCodeOf keeps what a guest or a person wrote out of what everybody sees.
func TestCodeOf(t *testing.T) {
	for reason, want := range map[string]string{
		"vm-ended: the VM ended; the end of its console:\n  x: y": "vm-ended", "": "", "its guest powered off": "",
		"Oops: 0000": "", "vm-ended": "vm-ended",
	} {
		if got := codeOf(reason); got != want {
			t.Errorf("codeOf(%q) = %q, want %q", reason, got, want)
		}
	}
}
