package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/e2e/lab"
)

// TestOtherGuests runs jobs in a Debian of 32 bits, and in one that boots by UEFI alone. Both are built of packages,
// of its main archive alone: a mirror may be amid an update of another. It takes minutes: GRANGE_SLOW=1 asks for it.
func TestOtherGuests(t *testing.T) {
	if os.Getenv("GRANGE_SLOW") == "" {
		t.Skip("takes minutes; GRANGE_SLOW=1 runs it")
	}
	guest := filepath.Join(host.Dir, "bin", "grange-guest-386")
	if err := lab.BuildGuest386(t.Context(), guest); err != nil {
		t.Fatal(err)
	}
	const archive = "kind = \"debian\"\nsuite = \"bookworm\"\n" +
		"sources = [\"deb http://deb.debian.org/debian bookworm main\"]\n"
	for name, c := range map[string]struct{ built, recipe, script, want string }{
		"i386": {os.Getenv("GRANGE_TEST_I386"), archive + "architecture = \"i386\"\n",
			"uname -m; dpkg --print-architecture; cat", "i686\ni386\ninput"},
		"uefi": {os.Getenv("GRANGE_TEST_UEFI"), archive + "firmware = \"efi\"\n",
			"test -d /sys/firmware/efi && echo uefi; cat", "uefi\ninput"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := c.built
			if disk == "" {
				disk = builtDisk(t, c.recipe)
			}
			run(t, host.Grange(t.Context(), "image", "import", "--name", name, disk), "").wantCode(t, 0)
			cmd := host.Exec(t.Context(), "-v", "--image", name, "--memory", "1G", "--", "sh", "-c", c.script)
			cmd.Dir = "/"
			r := run(t, cmd, "input")
			r.want(t, 0, c.want)
			t.Log(r.errors)
			run(t, host.Grange(ctx(t), "image", "rm", name), "").wantCode(t, 0)
		})
	}
}
