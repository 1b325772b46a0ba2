package machine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/disk"
	"github.com/grange-project/grange/internal/farm"
)

// closedHost lets no user of a VM open what QEMU needs.
type closedHost struct{ Hypervisor }

func (closedHost) OwnGroup(_ context.Context, _, tracked uint32) (uint32, string, error) {
	return 0, fmt.Sprintf("closed to group %d", tracked), nil
}

// TestSharedUser: where it cannot be machines run as QEMU's own user, and the host says so; also where the site has it
// so.
func TestSharedUser(t *testing.T) {
	c := config.Agent{VMUIDs: farm.UIDs{First: 2113929216, Last: 2113929300}}
	h := NewHost(Options{Hyper: closedHost{}, Log: slog.New(slog.DiscardHandler),
		Config: func() config.Agent { return c }})
	h.UID, h.GID = os.Getuid(), os.Getgid()
	close(h.users.checked)
	disks, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer disks.Close()
	h.Areas = Areas{disks, disks}
	u, err := h.TakeUser(t.Context(), "grange-a", 20017)
	if want := (User{UID: os.Getuid(), GID: os.Getgid(), Group: 20017}); err != nil || u != want {
		t.Errorf("%+v, %v", u, err)
	}
	if text := h.UsersWarning(); text != "" {
		t.Errorf("a batch system's group is no fault of the host's: %q", text)
	}
	if _, err = h.TakeUser(t.Context(), "grange-a", 0); err != nil {
		t.Error(err)
	}
	if text := h.UsersWarning(); !strings.Contains(text, "closed to group 0") {
		t.Errorf("the host says %q", text)
	}
	if len(h.users.given) != 0 {
		t.Errorf("users are kept for nobody: %v", h.users.given)
	}
	c.VMUIDs = farm.UIDs{}
	if u, err := h.TakeUser(t.Context(), "grange-b", 0); err != nil || u.Own != 0 || u.UID != os.Getuid() {
		t.Errorf("%+v, %v", u, err)
	}
	if text := h.UsersWarning(); !strings.Contains(text, "vm_uids is not set") {
		t.Errorf("the host says %q", text)
	}
}
