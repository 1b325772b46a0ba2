package farm

import (
	"reflect"
	"testing"
)

func TestParseBind(t *testing.T) {
	for text, want := range map[string]Bind{
		"/data":                     {Source: "/data"},
		".":                         {Source: "."},
		"/data:ro":                  {Source: "/data", ReadOnly: true},
		"/data:rw":                  {Source: "/data"},
		"/data:/in/":                {Source: "/data", Target: "/in"},
		"/data:/in:ro":              {Source: "/data", Target: "/in", ReadOnly: true},
		"/data:suid":                {Source: "/data", SetID: true},
		"/data:/in:suid:dev":        {Source: "/data", Target: "/in", SetID: true, Devices: true},
		"data:dev:ro":               {Source: "data", ReadOnly: true, Devices: true},
		"/data:/ro:ro":              {Source: "/data", Target: "/ro", ReadOnly: true},
		"/data:gateway=virtiofs":    {Source: "/data", Gateway: Virtiofs},
		"/data:/in:ro:gateway=fuse": {Source: "/data", Target: "/in", ReadOnly: true, Gateway: FUSE},
		"/data:gateway=auto:suid":   {Source: "/data", SetID: true, Gateway: AnyGateway},
		"/data:/in/../other:dev":    {Source: "/data", Target: "/other", Devices: true},
		"/data:needs=locks,acls":    {Source: "/data", Needs: []string{"locks", "acls"}},
		"/data:gateway=fuse:needs=locks:ro": {Source: "/data", Gateway: FUSE, ReadOnly: true,
			Needs: []string{"locks"}},
	} {
		got, err := ParseBind(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseBind(got.Source + ":" + "/x" + got.Options()); err != nil ||
			again.Options() != got.Options() {
			t.Errorf("%s: %q is read as %+v, %v", text, got.Options(), again, err)
		}
	}
	for _, text := range []string{"", ":/in", "/data:in", "/data:/", "/data:/..", "/data:/in:/more", "/data:",
		"/data:/in:", "/data:RO", "/data:ro,suid",
		"/data:gateway=", "/data:needs=", "/data:locks", "/data:needs", "/data:gateway=nfs",
		"/data:gateway=virtiofs:suid", "/data:gateway=sftp:dev", "/data:virtiofs"} {
		if b, err := ParseBind(text); err == nil {
			t.Errorf("%q: %+v", text, b)
		}
	}
}
