package placement

import (
	"fmt"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// matches reports whether labels are as a selector wants: "gpu" and "!gpu" look at whether the label is there, "kind=x"
// and "kind!=x" at its value; a host without the label has another value than x.
func matches(labels map[string]string, selector string) bool {
	if name, value, ok := strings.Cut(selector, "!="); ok {
		return labels[strings.TrimSpace(name)] != strings.TrimSpace(value)
	}
	if name, value, ok := strings.Cut(selector, "="); ok {
		got, there := labels[strings.TrimSpace(name)]
		return there && got == strings.TrimSpace(value)
	}
	if name, ok := strings.CutPrefix(selector, "!"); ok {
		_, there := labels[strings.TrimSpace(name)]
		return !there
	}
	_, there := labels[strings.TrimSpace(selector)]
	return there
}

// mismatch says in words why labels are not as a selector wants.
func mismatch(labels map[string]string, selector string) string {
	if name, value, ok := strings.Cut(selector, "!="); ok {
		return fmt.Sprintf("its label %s is %s", strings.TrimSpace(name), strings.TrimSpace(value))
	}
	name, value, ok := strings.Cut(selector, "=")
	if name = strings.TrimSpace(name); ok {
		if got, there := labels[name]; there {
			return fmt.Sprintf("its label %s is %s, not %s", name, got, strings.TrimSpace(value))
		}
	}
	if name, ok := strings.CutPrefix(name, "!"); ok {
		return "it has the label " + strings.TrimSpace(name)
	}
	return "it has no label " + name
}

// CodeNoPlace is the code of a claim that no host takes now.
const CodeNoPlace farm.Code = "no-place"
