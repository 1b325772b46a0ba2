package publish

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"testing"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/config"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/program"
)

// TestPublishTo: names are those of the configuration alone, and an account that nobody knows is never another one's.
func TestPublishTo(t *testing.T) {
	all := []config.PublishTo{{Name: "hub", Accounts: []string{"jupyterhub", "0"}},
		{Name: "far", Hosts: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		{Name: "gone", Accounts: []string{"root", "leaver"}}, {Name: "nobody", Accounts: []string{"nobody"}},
		{Name: "overflow", Accounts: []string{"65534"}}}
	accounts := names.New(func(_ context.Context, c program.Call) ([]byte, error) {
		uid, ok := map[string]string{"jupyterhub": "998", "root": "0", "nobody": "65534"}[c.Args[1]]
		if !ok {
			return nil, &program.Failed{Status: 2}
		}
		return []byte(c.Args[1] + ":x:" + uid + ":" + uid + "::/:/bin/sh\n"), nil
	})
	for name, want := range map[string]any{
		"hub": api.PublishTo{Name: "hub", UIDs: []uint32{998, 0}},
		"far": api.PublishTo{Name: "far", Hosts: []string{"192.0.2.1"}}, "gone": farm.CodeNoNames,
		"nobody": CodeNoPublish, "overflow": CodeNoPublish, "jupyterhub": CodeNoPublish, "": CodeNoPublish} {
		r, w := httptest.NewRequest("GET", "/v1/publish/x", nil), httptest.NewRecorder()
		r.SetPathValue("name", name)
		err := Serve(w, r, all, accounts)
		if code, ok := want.(farm.Code); ok {
			if !farm.IsCode(err, code) || w.Body.Len() > 0 {
				t.Errorf("%q: %v %s, want %s", name, err, w.Body, code)
			}
			continue
		}
		var got api.PublishTo
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
}
