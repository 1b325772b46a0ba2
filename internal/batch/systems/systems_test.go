package systems

import "testing"

// TestKinds: what recognises jobs knows how they are handed over, and there is one of each name.
func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range All {
		if k.Name == "" || seen[string(k.Name)] || k.Open == nil {
			t.Errorf("%q has no name or no driver, or comes twice", k.Name)
		}
		seen[string(k.Name)] = true
		if (k.Find == nil) != (k.Wrapper == nil) {
			t.Errorf("%s: jobs that are recognised are handed over, and no others", k.Name)
		}
		if found, ok := Find(k.Name); !ok || found.Name != k.Name {
			t.Errorf("%s is not found", k.Name)
		}
	}
}
