package probe

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestEcho(t *testing.T) {
	const text = "a\x00b\xff\n"
	var out, errs strings.Builder
	if status := echo(strings.NewReader(text), &out, &errs); status != 0 || out.String() != text {
		t.Errorf("%d, %q", status, out.String())
	}
	sum := sha256.Sum256([]byte(text))
	if errs.String() != Digest(sum[:]) {
		t.Errorf("%q", errs.String())
	}
}

func TestHold(t *testing.T) {
	var out strings.Builder
	if status := hold(strings.NewReader("load 1\nload 2\n"), &out); status != 0 {
		t.Errorf("status %d", status)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != Up || len(strings.Fields(lines[1])) != len(Kinds) {
		t.Errorf("%q", lines)
	}
	if status := hold(strings.NewReader("what\n"), &out); status == 0 {
		t.Error("nonsense is taken for a load")
	}
}

// TestRing: the walk comes by every line once, and back to the first.
func TestRing(t *testing.T) {
	const n = 1 << 10
	next := shuffled(n)
	at := 0
	for step := 1; ; step++ {
		if at = int(next[at*(line/4)]); at == 0 {
			if step != n {
				t.Errorf("back after %d steps of %d", step, n)
			}
			return
		}
	}
}
