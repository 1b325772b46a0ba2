package cli

import (
	"slices"
	"testing"
)

func TestCalled(t *testing.T) {
	wishes := map[string]string{"GRANGE_VM_IMAGE": "sl9"}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"/usr/bin/grange", []string{"vm", "list"}, []string{"vm", "list"}},
		{"-grange-exec-gridengine", []string{"/spool/7", "--help"},
			[]string{"exec", "--batch", "gridengine", "--image=sl9", "--", "/spool/7", "--help"}},
		{"/l/grange-gridengine-load-sensor", nil, []string{"gridengine", "load-sensor"}},
		{"sge_shepherd-11", []string{"-bg"}, []string{"gridengine", "shepherd", "--", "sge_shepherd-11", "-bg"}},
	} {
		if got := Called(c.name, c.args, func(key string) string { return wishes[key] }); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, want %q", c.name, c.args, got, c.want)
		}
	}
}
