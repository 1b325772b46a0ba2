package authn

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/names"
	"github.com/grange-project/grange/internal/oidc"
)

// byIssuer takes tokens of issuers, which programs bring: they look like no token of grange.
func byIssuer(d Directory, issuers *oidc.Issuers) Means {
	return func(ctx context.Context, s Shown) (farm.Identity, bool, error) {
		if !oidc.IsBearer(s.Token) {
			return farm.Identity{}, false, nil
		}
		claims, err := issuers.Bearer(ctx, s.Token)
		if err != nil {
			return farm.Identity{}, true, err
		}
		who, err := d.IdentifyClaims(ctx, claims)
		return who, true, err
	}
}

// byToken takes tokens of grange.
func byToken(d Directory) Means {
	return func(ctx context.Context, s Shown) (farm.Identity, bool, error) {
		if s.Token == "" {
			return farm.Identity{}, false, nil
		}
		who, err := d.IdentifyToken(ctx, s.Token)
		return who, true, err
	}
}

// bySession takes sessions of browsers. Somebody has signed in there: that goes before a certificate, which the browser
// may show by itself.
func bySession(d Directory) Means {
	return func(ctx context.Context, s Shown) (farm.Identity, bool, error) {
		if s.Session == "" {
			return farm.Identity{}, false, nil
		}
		who, err := d.IdentifySession(ctx, s.Session)
		return who, true, err
	}
}

// byCertificate takes certificates of people that one of these authorities vouches for.
func byCertificate(d Directory, people *People, now func() time.Time) Means {
	return func(ctx context.Context, s Shown) (farm.Identity, bool, error) {
		if len(s.Chain) == 0 || people == nil {
			return farm.Identity{}, false, nil
		}
		subject, err := subjectOf(s.Chain[0])
		if err != nil {
			return farm.Identity{}, true, doesNotHold(err)
		}
		authority, err := people.verify(s.Chain, subject, now())
		if err != nil {
			return farm.Identity{}, true, err
		}
		who, err := d.IdentifySubject(ctx, authority, subject.String(), len(people.authorities) == 1)
		return who, true, err
	}
}

// overflow is how the kernel shows users of other user namespaces: it may be anybody.
const overflow = 65534

// bySocket takes the kernel's word. Root, and whoever runs the server, could write into its database as well. Others
// are users of the same name.
func bySocket(d Directory, service *names.Service) Means {
	return func(ctx context.Context, s Shown) (farm.Identity, bool, error) {
		if !s.Socket {
			return farm.Identity{}, false, nil
		}
		source := "uid " + strconv.FormatUint(uint64(s.UID), 10)
		if s.UID == 0 || s.UID == uint32(os.Getuid()) {
			return farm.Identity{User: "root", Means: "socket", Source: source, Root: true}, true, nil
		}
		account, err := service.User(ctx, s.UID)
		if err != nil && !errors.Is(err, names.ErrUnknown) {
			return farm.Identity{}, true, err
		}
		if err != nil || s.UID == overflow {
			return farm.Identity{}, true,
				notKnown(source+" of this machine is not a user of the server",
					"an administrator adds a user of the same name; or use a token")
		}
		who, err := d.IdentifyUser(ctx, account.Name)
		who.Source = source
		return who, true, err
	}
}
