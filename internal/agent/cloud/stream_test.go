package cloud

import (
	"errors"
	"net"
	"testing"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

func TestDialVM(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	w := fleet.WantedVM{Name: "web", Bridge: "lo", Address: "127.0.0.1/8"}
	c, err := dialVM(t.Context(), w, port)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	isolated, elsewhere := w, w
	isolated.Bridge, elsewhere.Bridge = "", "nosuch0"
	for name, try := range map[string]struct {
		w    fleet.WantedVM
		port int
		code farm.Code
	}{
		"nobody there": {w, port, farm.CodeVMPort}, "no network": {isolated, port, farm.CodeVMPort},
		"no bridge": {elsewhere, port, farm.CodeVMPort},
		"port 0":    {w, 0, farm.CodeBadRequest}, "port 65536": {w, 65536, farm.CodeBadRequest},
	} {
		var e *farm.Error
		if _, err := dialVM(t.Context(), try.w, try.port); !errors.As(err, &e) || e.Code != try.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e *farm.Error
	if _, err := New(Options{}).Stream(t.Context(),
		fleet.StreamOrder{VM: "nosuch", Kind: fleet.StreamConsole}); !errors.As(err, &e) || e.Code != farm.CodeNoVM {
		t.Errorf("a VM that is not here: %v", err)
	}
}
