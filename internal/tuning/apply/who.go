package apply

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Who asked for an apply.
type Who struct {
	UID   int
	Login int // the person behind sudo, as the kernel audits it; -1 when not known
}

// Me is the caller of this process.
func Me() Who {
	w := Who{os.Getuid(), -1}
	text, err := os.ReadFile("/proc/self/loginuid")
	if err != nil {
		return w
	}
	// the kernel's "none"
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < math.MaxUint32 {
		w.Login = int(n)
	}
	return w
}

func (w Who) String() string {
	if w.Login < 0 || w.Login == w.UID {
		return fmt.Sprintf("uid %d", w.UID)
	}
	return fmt.Sprintf("uid %d, login %d", w.UID, w.Login)
}
