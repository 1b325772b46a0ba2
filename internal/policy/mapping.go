package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

// maxClaimValues bounds how many values of a claim are looked at.
const maxClaimValues = 10_000

// Mapped is what the claims of an issuer give, and why.
type Mapped struct {
	Rules   []farm.Mapping // that hold, in the order of the mappings
	Ignored []string       // mappings that do not hold, and claims' values that none has, each with the reason
}

// Grants are the roles that the rules give to a user.
func (m Mapped) Grants(user string) (grants []farm.Grant) {
	for _, r := range m.Rules {
		if g := r.Grant(user); !slices.Contains(grants, g) {
			grants = append(grants, g)
		}
	}
	return grants
}

// Map decides by mappings which roles the claims of an issuer give. Values are compared letter by letter.
func Map(mappings []farm.Mapping, issuer string, claims map[string]any) (out Mapped) {
	used := map[string]map[string]bool{} // values by claim
	for _, m := range mappings {
		if m.Issuer != issuer {
			continue
		}
		if used[m.Claim] == nil {
			used[m.Claim] = map[string]bool{}
		}
		used[m.Claim][m.Value] = true
		values, why := ClaimValues(claims, m.Claim)
		switch {
		case slices.Contains(values, m.Value):
			out.Rules = append(out.Rules, m)
		case why != "":
			out.Ignored = append(out.Ignored, fmt.Sprintf("mapping %v: %s", m, why))
		default:
			out.Ignored = append(out.Ignored, fmt.Sprintf("mapping %v: %s", m, lacks(values, m)))
		}
	}
	for _, claim := range sortedKeys(used) {
		values, _ := ClaimValues(claims, claim)
		for _, v := range values {
			if !used[claim][v] {
				out.Ignored = append(out.Ignored, fmt.Sprintf("%s=%q: no mapping of issuer %s has this value", claim, v,
					issuer))
			}
		}
	}
	return out
}

func sortedKeys(m map[string]map[string]bool) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lacks says which value a claim has not, and that it has one which differs in case or white space alone.
func lacks(values []string, m farm.Mapping) string {
	for _, v := range values {
		if strings.EqualFold(strings.TrimSpace(v), strings.TrimSpace(m.Value)) {
			return fmt.Sprintf("the claim has %q, which differs in case or white space alone: write it so in the "+
				"mapping, if it is meant", v)
		}
	}
	return "the claim has other values"
}

// ClaimValues are the values of a claim: of a text itself, of a list its texts. OAuth's scope is a list in one text. A
// claim whose name has dots is looked for by the whole name first, and then inside of others, as realm_access.roles.
// why says why there are none.
func ClaimValues(claims map[string]any, name string) (values []string, why string) {
	value, ok := claims[name]
	for inside, rest := claims, name; !ok; {
		first, more, dotted := strings.Cut(rest, ".")
		if !dotted {
			return nil, "there is no such claim"
		}
		next, isObject := inside[first].(map[string]any)
		if !isObject {
			return nil, "there is no such claim"
		}
		inside, rest = next, more
		value, ok = inside[rest]
	}
	switch v := value.(type) {
	case string:
		if name == "scope" {
			return strings.Fields(v), ""
		}
		return []string{v}, ""
	case []any:
		if len(v) > maxClaimValues {
			return nil, fmt.Sprintf("the claim has more than %d values", maxClaimValues)
		}
		for _, one := range v {
			if text, isText := one.(string); isText {
				values = append(values, text)
			}
		}
		return values, ""
	}
	return nil, "the claim is neither text nor a list of texts"
}
