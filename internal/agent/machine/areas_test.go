package machine

import (
	"path/filepath"
	"testing"

	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/mounts/mountstest"
)

// TestCheckMounts: an area on a file system whose server does not answer is refused, and nobody waits for that server.
func TestCheckMounts(t *testing.T) {
	h := mountstest.Mount(t)
	local := config.Area{Path: filepath.Dir(h.Dir)}
	hung := config.Area{Path: filepath.Join(h.Dir, "images")}
	h.Do(func() {
		if err := CheckMounts(config.Areas{Jobs: local, Cloud: local, Images: local}); err != nil {
			t.Error(err)
		}
		for _, c := range []config.Areas{{Jobs: hung, Cloud: local, Images: local},
			{Jobs: local, Cloud: hung, Images: local}, {Jobs: local, Cloud: local, Images: hung}} {
			if err := CheckMounts(c); !farm.IsCode(err, CodeNetworkFS) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}
