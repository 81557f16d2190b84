"""How one signs in at AWS where moto does not do it: the portal of single sign-on, the renewal of its tokens, the metadata service, tokens
that somebody else has signed, and roles that trust one other role alone."""
import json
import re
import urllib.parse

from cloud_mock import Refused
from moto import settings

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/builder"
DEPLOYER = f"arn:aws:iam::{ACCOUNT}:role/ops/deployer"  # trusts the role builder, and nobody else
SSO_TOKEN = "sso-token-0123456789"
WEB_TOKEN = "web.identity-token.0123456789"
METADATA_TOKEN = "metadata-token-0123456789"
CONTAINER_TOKEN = "container-token-0123456789"


def refused(code, words, status=400):
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{words}</Message></Error></Errors><RequestID>req-moto</RequestID></Response>"
    return Refused(status, body.encode(), {"Content-Type": "text/xml"})


class SignIn:
    def portal(self, query, headers):
        if headers.get("x-amz-sso_bearer_token") not in self.sso_tokens:
            raise Refused(401, {"message": "Session token not found or invalid"}, {"x-amzn-ErrorType": "UnauthorizedException"})
        if query != {"account_id": [ACCOUNT], "role_name": ["builder"]}:
            raise Refused(403, {"message": "No access"}, {"x-amzn-ErrorType": "ForbiddenException"})
        return 200, {"roleCredentials": {"accessKeyId": self.role["id"], "secretAccessKey": self.role["secret"],
                                         "sessionToken": self.role["token"], "expiration": 4102444800000}}

    # CreateToken of the service SSO OIDC; each refresh token is good for once.
    def renew(self, body):
        def no(status, error, kind):
            raise Refused(status, {"error": error, "error_description": "as AWS says it"}, {"x-amzn-ErrorType": kind})
        if (body["clientId"], body["clientSecret"]) != ("sso-client", "sso-client-secret"):
            no(401, "invalid_client", "InvalidClientException")
        if (body["grantType"], body["refreshToken"]) != ("refresh_token", self.refresh_token):
            no(400, "invalid_grant", "InvalidGrantException")
        self.renewals += 1
        self.refresh_token, token = f"sso-refresh-token-{self.renewals}", f"sso-token-renewed-{self.renewals}"
        self.sso_tokens.add(token)
        return 200, {"accessToken": token, "expiresIn": 3600, "refreshToken": self.refresh_token, "tokenType": "Bearer"}

    # moto takes any token, and asks for a signature, which nobody can make who has but a token.
    def by_web_identity(self, method, path, query, headers, body):
        form = {key: values[-1] for key, values in urllib.parse.parse_qs(body.decode()).items()}
        if "Authorization" in headers:
            raise refused("InvalidRequest", "AssumeRoleWithWebIdentity is not signed")
        if form["WebIdentityToken"] != WEB_TOKEN:
            raise refused("InvalidIdentityToken", "Couldn't retrieve verification key from your identity provider")
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        try:
            return self.moto(method, path, query, headers, body)
        finally:
            settings.INITIAL_NO_AUTH_ACTION_COUNT = 0

    # moto asks no role whom it trusts.
    def check_trust(self, headers, role):
        who = re.search(r"Credential=([^/]*)/", headers.get("Authorization", ""))
        if role == DEPLOYER and not who[1].startswith("ASIA"):
            raise refused("AccessDenied", "User is not authorized to perform: sts:AssumeRole", 403)

    def metadata(self, method, path, headers):
        if path == "/latest/api/token" and method == "PUT" and headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return 200, METADATA_TOKEN.encode(), {"Content-Type": "text/plain"}
        if headers.get("X-aws-ec2-metadata-token") != METADATA_TOKEN:
            raise Refused(401, b"")
        pages = {"/latest/meta-data/iam/security-credentials/": "builder", "/latest/meta-data/placement/region": "us-west-2",
                 "/latest/meta-data/iam/security-credentials/builder": json.dumps(
                     {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": self.role["id"], "SecretAccessKey": self.role["secret"],
                      "Token": self.role["token"], "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": "2100-01-01T00:00:00Z"})}
        if path not in pages:
            raise Refused(404, b"")
        return 200, pages[path].encode(), {"Content-Type": "text/plain"}

    # What stands beside a container (ECS, EKS).
    def container(self, headers):
        if headers.get("Authorization") != CONTAINER_TOKEN:
            raise Refused(401, b'{"code": "AccessDenied", "message": "no such token"}')
        keys = {"AccessKeyId": self.role["id"], "SecretAccessKey": self.role["secret"], "Token": self.role["token"],
                "RoleArn": "arn:aws:iam::123456789012:role/builder", "Expiration": "2100-01-01T00:00:00Z"}
        return 200, json.dumps(keys).encode(), {"Content-Type": "application/json"}
