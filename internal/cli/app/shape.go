package app

import (
	"strconv"

	"github.com/grange-project/grange/internal/farm"
)

// ThreadPolicy reads the flag of a VM's thread policy: prefer, require or isolate.
func ThreadPolicy(flag, text string) (farm.ThreadPolicy, error) {
	switch text {
	case "prefer":
		return farm.PreferSiblings, nil
	case "require", "isolate":
		return farm.ThreadPolicy(text), nil
	}
	return "", Usage("write prefer, require or isolate", "%s %q is not known", flag, text)
}

// GuestNodes reads the flag of a guest's NUMA nodes: auto is 0, none is 1.
func GuestNodes(flag, text string) (int, error) {
	switch n, err := strconv.Atoi(text); {
	case text == "auto":
		return 0, nil
	case text == "none":
		return 1, nil
	case err != nil || n < 1 || n > farm.MaxCPUs:
		return 0, Usage("write auto, none or a number of cells", "%s %q is not known", flag, text)
	default:
		return n, nil
	}
}
