# The functions of nixpkgs' lib that relink's Nix files use, by their documented behaviour.
let
  lib = {
    attrByPath =
      path: default: set:
      if path == [ ] then
        set
      else if builtins.isAttrs set && set ? ${builtins.head path} then
        lib.attrByPath (builtins.tail path) default set.${builtins.head path}
      else
        default;
    cleanSource = path: path;
    composeManyExtensions =
      overlays: final: prev:
      builtins.foldl' (done: overlay: done // overlay final (prev // done)) { } overlays;
    versionAtLeast = version: least: builtins.compareVersions version least >= 0;
    concatMapStrings = f: list: builtins.concatStringsSep "" (map f list);
    concatMapStringsSep =
      separator: f: list:
      builtins.concatStringsSep separator (map f list);
    optionalString = condition: text: if condition then text else "";
    escapeShellArg =
      text:
      if builtins.match "[[:alnum:],._+:@%/-]+" (toString text) != null then
        toString text
      else
        "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] (toString text) + "'";
    escapeShellArgs = list: builtins.concatStringsSep " " (map lib.escapeShellArg list);
    filterAttrs =
      keep: set:
      builtins.removeAttrs set (
        builtins.filter (name: !(keep name set.${name})) (builtins.attrNames set)
      );
    mapAttrs = builtins.mapAttrs;
    mapAttrsToList = f: set: map (name: f name set.${name}) (builtins.attrNames set);
    getLib =
      package:
      if package.outputSpecified or false then package else package.lib or package.out or package;
    getLicenseFromSpdxId = spdxId: { inherit spdxId; };
    hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
    concatStringsSep = builtins.concatStringsSep;
    subtractLists = taken: builtins.filter (item: !(builtins.elem item taken));
    last = list: builtins.elemAt list (builtins.length list - 1);
    licenses = {
      asl20.spdxId = "Apache-2.0";
      gpl3Plus.spdxId = "GPL-3.0-or-later";
      mit.spdxId = "MIT";
    };
    makeBinPath = list: builtins.concatStringsSep ":" (map (package: "${package}/bin") list);
    nameValuePair = name: value: { inherit name value; };
    optionals = condition: list: if condition then list else [ ];
    optionalAttrs = condition: set: if condition then set else { };
    partition = builtins.partition;
    sourceTypes.binaryNativeCode = "binaryNativeCode";
    splitString =
      separator: text:
      builtins.filter builtins.isString (
        builtins.split (if separator == " " then separator else "[${separator}]") text
      );
    warn = message: builtins.trace "evaluation warning: ${message}";
    unique = builtins.foldl' (
      done: item: if builtins.elem item done then done else done ++ [ item ]
    ) [ ];
  };
in
lib
