package vmimage

import (
	"slices"
	"testing"
)

func TestDependencies(t *testing.T) {
	const listing = `Package: slurmd
Depends: libc6 (>= 2.34), libhwloc15 (>= 2.9.0) | libhwloc5, ucf, munge, libpam0g:any (>= 0.99.7.1)
Description: libnot1, libneither2

Package: munge
Pre-Depends: libbz2-1.0
Depends: libhwloc15, libgcrypt20 (>= 1.10.0), zlib1g (>= 1), adduser
`
	seen := map[string]bool{"libc6": true}
	got := dependencies(listing, seen)
	want := []string{"libhwloc15", "libpam0g", "libbz2-1.0", "libgcrypt20", "zlib1g"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if again := dependencies(listing, seen); len(again) > 0 {
		t.Errorf("told again: %v", again)
	}
}
