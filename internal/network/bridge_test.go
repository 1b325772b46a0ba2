package network

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/grange-project/grange/internal/waittest"
)

// shownBridges are those that /sys tells of, which is of this network where a test runs.
func shownBridges(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("/sys/class/net/*/bridge")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(names)
	return names
}

// TestBridges compares with what /sys tells. Others may make and remove bridges meanwhile.
func TestBridges(t *testing.T) {
	var want, got []string
	waittest.For(t, "nobody else changes bridges", func() bool {
		want = shownBridges(t)
		var err error
		if got, err = Bridges(); err != nil {
			t.Fatal(err)
		}
		return slices.Equal(want, shownBridges(t))
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLinkKind(t *testing.T) {
	bridge := "\x0b\x00\x01\x00bridge\x00\x00"
	for text, want := range map[string]string{
		bridge: "bridge", "\x09\x00\x01\x00veth\x00": "veth", "\x05\x00\x02\x00x\x00\x00\x00" + bridge: "bridge",
		"": "", "\x0b": "", "\x00\x00\x01\x00": "", "\xff\xff\x01\x00bridge": "", "\x05\x00\x02\x00x": "",
	} {
		if got := linkKind([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
