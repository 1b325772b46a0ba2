package store

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestRecentIsSmall: what people may make large is not remembered.
func TestRecentIsSmall(t *testing.T) {
	s := inside(t)
	long := strings.Repeat("x", maxEntered)
	for name, c := range map[string]struct {
		vm   farm.VM
		kept bool
	}{
		"usual": {farm.VM{Keys: []string{"ssh-ed25519 AAAA"}, UserData: []byte("#cloud-config"),
			Tags: map[string]string{"tier": "front"}}, true},
		"user data": {farm.VM{UserData: []byte(long)}, false},
		"keys":      {farm.VM{Keys: []string{long[:len(long)/2], long[:len(long)/2]}}, false},
		"tags":      {farm.VM{Tags: map[string]string{"tier": long}}, false},
	} {
		c.vm.ID, c.vm.Project, c.vm.Name = "id "+name, "p", name
		revision, err := s.Update(t.Context(), func(tx *Tx) error { return tx.InsertVM(c.vm) })
		if kept := s.Inserted(Change{Revision: revision, ID: c.vm.ID}) != nil; err != nil || kept != c.kept {
			t.Errorf("%s: remembered: %v (%v)", name, kept, err)
		}
	}
}
