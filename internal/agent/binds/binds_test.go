package binds

import (
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

func TestWantedGateway(t *testing.T) {
	both, fuse, virtiofs := farm.Gateways, []farm.Gateway{farm.FUSE}, []farm.Gateway{farm.Virtiofs}
	for _, c := range []struct {
		asked   farm.Gateway
		allowed []farm.Gateway
		want    farm.Gateway
	}{
		{"", nil, farm.FUSE},
		{"", both, farm.AnyGateway},
		{"", fuse, farm.FUSE},
		{"", virtiofs, farm.Virtiofs},
		{farm.AnyGateway, nil, farm.AnyGateway},
		{farm.AnyGateway, both, farm.AnyGateway},
		{farm.AnyGateway, fuse, farm.FUSE},
		{farm.AnyGateway, virtiofs, farm.Virtiofs},
		{farm.FUSE, both, farm.FUSE},
		{farm.Virtiofs, nil, farm.Virtiofs},
		{farm.SFTP, nil, farm.SFTP},
		{"", []farm.Gateway{farm.SFTP}, farm.SFTP},
		{farm.AnyGateway, []farm.Gateway{farm.SFTP}, farm.AnyGateway}, // what a bind needs, sftp may lack
	} {
		got, why := wanted(c.asked, c.allowed)
		if got != c.want || (why == "") != (got == farm.AnyGateway) {
			t.Errorf("%q of %v: %q, %q", c.asked, c.allowed, got, why)
		}
	}
}

// TestGuestBinds: a bind that virtiofs does not have comes by stream, unless it asks for nothing else.
func TestGuestBinds(t *testing.T) {
	binds, err := ForGuest(t.Context(), nil, []api.Bind{{Target: "/a/"}, {Target: "/b", Gateway: "auto"},
		{Target: "/c", Gateway: "fuse", ReadOnly: true}}, Caller{}, nil)
	if err != nil || len(binds) != 3 || binds[0].Target != "/a" || !binds[2].ReadOnly {
		t.Errorf("%+v, %v", binds, err)
	}
	for _, b := range binds {
		if b.Tag != "" {
			t.Errorf("%+v", b)
		}
	}
	_, err = ForGuest(t.Context(), nil, []api.Bind{{Target: "/a", Gateway: "virtiofs"}}, Caller{}, nil)
	if !farm.IsCode(err, "no-gateway") {
		t.Error(err)
	}
}
