package conform

import (
	"context"
	"fmt"
	"strings"
)

// kernelFiles: a job asks for the host's /proc in its VM, by itself and below /. With it a guest could write into the
// memory of its wrapper, which runs on the host as the job's user.
func kernelFiles(ctx context.Context, t *try) error {
	refused, err := t.job(ctx, Job{Mounts: []string{"/proc:/x"}, Script: shebang + `echo began
p=$(readlink /x/self)
printf '\177ELF' | dd of=/x/$p/mem bs=4 seek=1048576 conv=notrunc && echo wrote
`})
	if err != nil {
		return err
	}
	if refused.State == Done || strings.Contains(refused.Stdout, "began") {
		return fmt.Errorf("a job with the host's /proc: %v", refused)
	}
	below, err := t.job(ctx, Job{Mounts: []string{"/:/h:ro"}, Script: shebang + `head -c 1 /h/etc/passwd >/dev/null && echo there
ls -A /h/proc /h/sys | grep -v : | grep . && echo found
exit 0
`})
	if err != nil {
		return err
	}
	if below.State != Done || strings.TrimSpace(below.Stdout) != "there" {
		return fmt.Errorf("a job with the host's /: %v", below)
	}
	return nil
}
